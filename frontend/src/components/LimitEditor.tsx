import { useState } from "preact/hooks";
import { call, useGet } from "../data/api";
import type { ServiceLimits } from "../data/jobs";
import { attempt } from "./Announcements";
import { Confirm } from "./Confirm";

interface Change {
  limit?: number;
  rate?: number;
  waiting?: number;
  paused?: boolean;
}

const NAMES: Record<keyof Change, string> = { limit: "slots", rate: "starts a minute", waiting: "waiting jobs", paused: "paused" };

/** Limits of a service, changed while it runs. A change is confirmed, and the audit log keeps it. */
export function LimitEditor({ name }: { name: string }) {
  const loaded = useGet<{ services: ServiceLimits[] }>("/admin/services");
  const service = loaded.data?.services.find((each) => each.name === name);
  if (loaded.data === null) return <p class="soft">Loading the limits.</p>;
  if (service === undefined) return <p class="soft">{name} has no limits of its own: its workers decide.</p>;
  return <LimitForm key={JSON.stringify(service)} service={service} onChange={loaded.reload} />;
}

export function LimitForm({ service, onChange }: { service: ServiceLimits; onChange: () => void }) {
  const [values, setValues] = useState({ limit: service.limit, rate: service.rate, waiting: service.waiting });
  const [asked, setAsked] = useState<Change | null>(null);
  const changed = Object.fromEntries(
    (["limit", "rate", "waiting"] as const).filter((key) => values[key] !== service[key]).map((key) => [key, values[key]]),
  ) as Change;
  const field = (key: "limit" | "rate" | "waiting", label: string, hint: string) => (
    <label title={hint}>
      {label}
      <input
        type="number"
        min={0}
        max={1_000_000}
        value={values[key]}
        onInput={(event) => setValues({ ...values, [key]: Number(event.currentTarget.value) })}
      />
    </label>
  );
  return (
    <form
      class="form limits"
      onSubmit={(event) => {
        event.preventDefault();
        if (Object.keys(changed).length > 0) setAsked(changed);
      }}
    >
      <div class="form-row three">
        {field("limit", "Slots", "calls at once")}
        {field("rate", "Starts/min", "0 = no limit")}
        {field("waiting", "Waiting jobs", "0 = no limit")}
      </div>
      <div class="actions">
        <button class="primary" type="submit" disabled={Object.keys(changed).length === 0}>
          Change…
        </button>
        <button type="button" onClick={() => setAsked({ paused: !service.paused })}>
          {service.paused ? "Open again…" : "Pause…"}
        </button>
      </div>
      {asked && (
        <Confirm
          title={`Change ${service.name}?`}
          action="Change it now"
          onClose={() => setAsked(null)}
          onConfirm={() =>
            attempt(() => call("PUT", `/admin/services/${encodeURIComponent(service.name)}`, asked), `${service.name} is changed in every process.`).then(onChange)
          }
        >
          <ul class="reasons">
            {(Object.keys(asked) as (keyof Change)[]).map((key) => (
              <li>{sentence(key, service[key], asked[key])}</li>
            ))}
          </ul>
          <p class="soft">It takes effect at once. Running calls are not stopped. The audit log keeps who changed it.</p>
        </Confirm>
      )}
    </form>
  );
}

function sentence(key: keyof Change, before: number | boolean, after: number | boolean | undefined): string {
  if (key === "paused") return after ? "Nothing new will start until it is opened again." : "It will start jobs again.";
  const written = (value: number | boolean | undefined) => (value === 0 && key !== "limit" ? "no limit" : String(value));
  return `${NAMES[key]}: ${written(before)} → ${written(after)}`;
}
