import type { Service, Slot } from "../data/frame";
import { now } from "../data/live";
import { clock, count, duration, speed } from "../format";
import { jobLink } from "../router";
import { tierClass } from "../tiers";
import { DataTable } from "./DataTable";

const WIDE_CELLS = 2;

/** One cell a slot. It fills as its call nears the usual time; a hatched red one is held. */
export function Slots({ name, service }: { name: string; service: Service }) {
  if (service.slots.length === 0) return <SlotCounts service={service} />;
  return (
    <div class="slots-box">
      <div class={service.slots.length <= WIDE_CELLS ? "slots wide" : "slots"} aria-hidden="true">
        {service.slots.map((slot) => (
          <Cell key={`${slot.region}/${slot.slot}/${slot.job}/${slot.state}`} slot={slot} />
        ))}
      </div>
      <DataTable
        hidden
        caption={`Slots of ${name}`}
        columns={["slot", "state", "user", "tier", "model", "running for", "usually"]}
        rows={service.slots.map((slot) => [
          `${slot.region ?? ""} ${slot.slot + 1}`,
          slot.state,
          slot.user ?? "–",
          slot.tier ?? "–",
          slot.model ?? "–",
          duration(elapsed(slot)),
          duration(slot.usual_seconds),
        ])}
      />
    </div>
  );
}

function Cell({ slot }: { slot: Slot }) {
  const kind = `slot ${slot.state} ${tierClass(slot.tier)} ${slot.model ? "has-model" : ""}`;
  const text = slot.model ? <span class="slot-model">{slot.model}</span> : null;
  const style = { "--fill": String(filled(slot)) };
  if (slot.job === null) return <span class={kind} title={sentence(slot)} style={style}>{text}</span>;
  return (
    <a class={kind} title={sentence(slot)} style={style} href={jobLink(slot.job)} tabIndex={-1}>
      {text}
    </a>
  );
}

function SlotCounts({ service }: { service: Service }) {
  const { limit, running } = service;
  if (limit === null) {
    return (
      <p class="slots-box slot-total">
        {count(running)} <span class="soft">running, no limit</span>
      </p>
    );
  }
  return (
    <div class="slots-box">
      <p class="slot-total">
        {count(running)} <span class="soft">of {count(limit)} in use</span>
      </p>
      <div class="bar" aria-hidden="true">
        {Object.entries(service.slot_counts).map(([tier, slots]) => (
          <i class={tierClass(tier)} style={{ "--share": String(slots / Math.max(1, limit)) }} />
        ))}
      </div>
    </div>
  );
}

function elapsed(slot: Slot): number | null {
  return slot.since === null ? null : (now.value - slot.since) / 1000;
}

/** From 0 to 1; a call that takes longer than usual stays full. */
function filled(slot: Slot): number {
  const passed = elapsed(slot);
  if (slot.state !== "running" || passed === null) return 0;
  if (slot.usual_seconds === null || slot.usual_seconds <= 0) return 0.5;
  return Math.min(1, Math.max(0.06, passed / slot.usual_seconds));
}

function sentence(slot: Slot): string {
  const where = slot.region ? `slot ${slot.slot + 1} in ${slot.region}` : `slot ${slot.slot + 1}`;
  if (slot.state === "free") return `${where} is free${slot.model ? `, ${slot.model} is loaded` : ""}`;
  if (slot.state === "held") return `${where} is held${slot.until && speed.value === 1 ? ` until ${clock(slot.until)}` : ""}: a cut call may still run there`;
  const usual = slot.usual_seconds === null ? "" : ` of usually ${duration(slot.usual_seconds)}`;
  return `${where}: ${slot.user ?? "another tenant"}, ${slot.tier ?? "no tier"}${slot.model ? `, ${slot.model}` : ""}, ${duration(elapsed(slot))}${usual}`;
}
