import { useEffect, useState } from "preact/hooks";
import { call } from "../data/api";
import type { Simulation, WaitFigures } from "../data/jobs";
import { frame } from "../data/live";
import { count, duration, percent } from "../format";
import { tierClass } from "../tiers";

const MAX_FACTOR = 3;

/** Another limit, tried on the arrivals of the last hour: the waits then, beside today's. */
export function WhatIf({ name, limit }: { name: string; limit: number }) {
  const [wanted, setWanted] = useState(limit + 1);
  const [found, setFound] = useState<{ limit: number; simulation: Simulation } | null>(null);
  const [busy, setBusy] = useState(false);
  const [refused, setRefused] = useState("");
  useEffect(() => {
    setWanted(limit + 1);
    setFound(null);
    setRefused("");
  }, [name, limit]);
  const run = async () => {
    setBusy(true);
    setRefused("");
    try {
      setFound({ limit: wanted, simulation: await call<Simulation>("POST", "/admin/simulate", { service: name, limit: wanted }) });
    } catch (error) {
      setRefused(error instanceof Error ? error.message : String(error));
    }
    setBusy(false);
  };
  return (
    <div class="what-if">
      <label>
        <span>
          With <b>{count(wanted)}</b> {wanted === 1 ? "slot" : "slots"} instead of {count(limit)}
        </span>
        <input
          type="range"
          min={1}
          max={Math.max(limit * MAX_FACTOR, limit + 5)}
          value={wanted}
          onInput={(event) => setWanted(Number(event.currentTarget.value))}
        />
      </label>
      <button onClick={() => void run()} disabled={busy}>
        {busy ? "Simulating" : "Simulate the last hour"}
      </button>
      {refused && <p class="wrong" role="alert">{refused}</p>}
      {found && <Waits then={found.limit} simulation={found.simulation} />}
    </div>
  );
}

function Waits({ then, simulation }: { then: number; simulation: Simulation }) {
  const tiers = (frame.value?.tiers ?? []).map((tier) => tier.name).filter((tier) => simulation.today[tier] || simulation.then[tier]);
  const most = Math.max(0.001, ...tiers.flatMap((tier) => [simulation.today[tier]?.p95 ?? 0, simulation.then[tier]?.p95 ?? 0]));
  return (
    <>
      <table class="plain what-if-table">
        <caption class="soft">19 of 20 jobs wait less than</caption>
        <thead>
          <tr>
            <th scope="col">tier</th>
            <th scope="col">now</th>
            <th scope="col">with {count(then)}</th>
            <th scope="col" class="right">in target</th>
          </tr>
        </thead>
        <tbody>
          {tiers.map((tier) => (
            <tr class={tierClass(tier)}>
              <th scope="row" class="tier-name">{tier}</th>
              <td>
                <Bar figures={simulation.today[tier]} most={most} />
              </td>
              <td>
                <Bar figures={simulation.then[tier]} most={most} />
              </td>
              <td class="right">
                {inTarget(simulation.today[tier], simulation.then[tier])}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="soft small">
        {count(simulation.arrivals)} arrivals, {duration(simulation.seconds_simulated)} simulated, seed {simulation.seed}.{" "}
        {capitalised(simulation.note ?? "")}
      </p>
    </>
  );
}

function Bar({ figures, most }: { figures: WaitFigures | undefined; most: number }) {
  return (
    <span class="wait-bar">
      <i aria-hidden="true" style={{ "--share": String((figures?.p95 ?? 0) / most) }} />
      <span>{duration(figures?.p95)}</span>
    </span>
  );
}

/** "98 → 100 %" */
function inTarget(today: WaitFigures | undefined, then: WaitFigures | undefined): string {
  if (today?.share_in_target == null || then?.share_in_target == null) return "–";
  return `${percent(today.share_in_target).replace(" %", "")} → ${percent(then.share_in_target)}`;
}

const capitalised = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
