import { Alerts } from "../components/Alerts";
import { Header } from "../components/Header";
import { Notice } from "../components/Notice";
import { ServiceCard } from "../components/ServiceCard";
import { TierDot } from "../components/TierDot";
import { frame } from "../data/live";
import type { Tier } from "../data/frame";
import { count, duration, LOOK_BACK_SECONDS, percent, rate } from "../format";
import { tierClass } from "../tiers";

/** What is going on: what is wrong, how full the slots are, who is next and why. */
export function NowView() {
  const shown = frame.value;
  return (
    <>
      <Header title="Now" />
      {shown === null ? <Notice>Waiting for the first figures.</Notice> : <Picture />}
    </>
  );
}

function Picture() {
  const shown = frame.value;
  if (shown === null) return null;
  const names = Object.keys(shown.services);
  return (
    <>
      <Alerts />
      <section class="tiles" aria-label="Overview">
        <SlotTile />
        {shown.tiers.map((tier) => (
          <TierTile key={tier.name} tier={tier} />
        ))}
      </section>
      {names.length === 0 && <Notice>No service is configured, and no task has been submitted yet.</Notice>}
      {names.map((name) => (
        <ServiceCard key={name} name={name} />
      ))}
      <p class="legend" aria-hidden="true">
        {shown.tiers.map((tier) => (
          <span>
            <TierDot tier={tier.name} /> {tier.name}
          </span>
        ))}
        <span>a cell is one slot; it fills as the call nears its usual time</span>
        <span>lines: the last {duration(LOOK_BACK_SECONDS)}; dashed: target</span>
      </p>
    </>
  );
}

/** Services without a limit have no slots: their running jobs are counted beside those in slots. */
function SlotTile() {
  const totals = frame.value?.totals;
  if (totals === undefined) return null;
  const limited = totals.slots > 0;
  const unlimited = Object.values(frame.value?.services ?? {})
    .filter((service) => service.limit === null)
    .reduce((sum, service) => sum + service.running, 0);
  const parts = [`${count(totals.waiting)} waiting`];
  if (totals.delayed > 0) parts.push(`${count(totals.delayed)} delayed`);
  if (limited && unlimited > 0) parts.push(`${count(unlimited)} running without a limit`);
  parts.push(`${rate(totals.started_per_second)} started`);
  return (
    <div class="card tile">
      <h2>{limited ? "slots in use" : "running, no limit"}</h2>
      <p>
        <b class="big">{limited ? `${count(totals.slots_used)} of ${count(totals.slots)}` : count(unlimited)}</b>{" "}
        <span class="soft">{parts.join(" · ")}</span>
      </p>
      {limited && <Meter share={totals.slots_used / totals.slots} kind="plain" />}
    </div>
  );
}

function TierTile({ tier }: { tier: Tier }) {
  const { share_in_target: share, target_seconds: target } = tier;
  const missed = share !== null && share < 0.9;
  return (
    <div class={`card tile ${tierClass(tier.name)}`}>
      <h2 class="tier-name">{tier.name}</h2>
      {target === null || share === null ? (
        <p>
          <b class="big">{count(tier.started)}</b>{" "}
          <span class="soft">started{target === null ? "" : `, target ${duration(target)}`}</span>
        </p>
      ) : (
        <p>
          <b class={missed ? "big wrong" : "big"}>{percent(share)}</b>{" "}
          <span class="soft">started within {duration(target)}</span>
        </p>
      )}
      <Meter share={share} kind="tier" />
    </div>
  );
}

function Meter({ share, kind }: { share: number | null; kind: "tier" | "plain" }) {
  return (
    <div class={`meter ${kind}`} aria-hidden="true">
      {share !== null && <i style={{ "--share": String(share) }} />}
    </div>
  );
}
