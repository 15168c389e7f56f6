import { useComputed } from "@preact/signals";
import type { Service } from "../data/frame";
import { frame } from "../data/live";
import { duration, plural, range, rate } from "../format";
import { serviceLink } from "../router";
import { DataTable } from "./DataTable";
import { Ribbon } from "./Ribbon";
import { Slots } from "./Slots";
import { Sparkline } from "./Sparkline";
import { WaitingBar } from "./WaitingBar";

/** One service on Now: its slots, its queue, its waits against the target, and who is next. */
export function ServiceCard({ name }: { name: string }) {
  const service = useComputed(() => frame.value?.services[name]).value;
  if (service === undefined) return null;
  return (
    <section class="card service" aria-label={name}>
      <div class="service-head">
        <div class="service-name">
          <h2>
            <a href={serviceLink(name)}>{name}</a>
          </h2>
          <p class="soft">{subtitle(service)}</p>
        </div>
        <Slots name={name} service={service} />
        <WaitingBar service={service} />
        <Waits service={service} />
        <div class="started">
          <span class="label">started</span>
          <b class="figure">{rate(service.started_per_second)}</b>
        </div>
      </div>
      <TierTable name={name} service={service} hidden />
      <Ribbon service={name} next={service.next} waiting={waitingIn(service)} />
    </section>
  );
}

/** The line is the p95 of all tiers, red above the dashed target. A tier that is later than its own
 *  target is named below. */
export function Waits({ service }: { service: Service }) {
  const late = lateTier(service);
  const limit = target(service);
  const latest = service.p95.findLast((value) => value !== null) ?? null;
  const wrong = latest !== null && limit !== null && latest > limit;
  return (
    <div class="waits">
      <span class="label">19 of 20 jobs waited less than</span>
      <div class="waits-line">
        <Sparkline values={service.p95} target={limit} wrong={wrong} />
        <b class={wrong ? "figure wrong" : "figure"}>{duration(latest)}</b>
      </div>
      {late !== null && (
        <span class="label wrong">
          {late.name}: {duration(late.p95)}, target {duration(late.target)}
        </span>
      )}
    </div>
  );
}

export function TierTable({ name, service, hidden = false }: { name: string; service: Service; hidden?: boolean }) {
  const tiers = frame.value?.tiers ?? [];
  return (
    <DataTable
      hidden={hidden}
      caption={`Waits of ${name} by tier`}
      columns={["tier", "waiting", "half waited less than", "19 of 20 less than", "target", "started", "a new job starts in"]}
      rows={tiers.map((tier) => {
        const load = service.tiers[tier.name];
        if (load === undefined) return [tier.name, 0, "–", "–", duration(tier.target_seconds), "–", "–"];
        return [
          tier.name,
          load.waiting,
          duration(load.p50),
          duration(load.p95),
          duration(tier.target_seconds),
          rate(load.started_per_second),
          range(load.eta_p50, load.eta_p90),
        ];
      })}
    />
  );
}

/** The best tier that waits longer than its own target; null if none does. */
function lateTier(service: Service): { name: string; p95: number; target: number } | null {
  for (const { name, target_seconds } of frame.value?.tiers ?? []) {
    const p95 = service.tiers[name]?.p95 ?? null;
    if (p95 !== null && target_seconds !== null && p95 > target_seconds) return { name, p95, target: target_seconds };
  }
  return null;
}

/** The target of the slackest tier with traffic: a wait above it is too long for every tier. */
function target(service: Service): number | null {
  const targets = (frame.value?.tiers ?? [])
    .filter((tier) => (service.tiers[tier.name]?.p95 ?? null) !== null)
    .map((tier) => tier.target_seconds)
    .filter((seconds) => seconds !== null);
  return targets.length === 0 ? null : Math.max(...targets);
}

export const waitingIn = (service: Service): number =>
  Object.values(service.tiers).reduce((sum, tier) => sum + tier.waiting, 0);

export function subtitle(service: Service): string {
  const parts = [];
  if (service.kind === "workers") parts.push("pulled by workers");
  if (service.kind === "celery") parts.push("Celery");
  if (service.kind === "callers") parts.push("taken by callers");
  if (service.limit !== null) parts.push(plural(service.limit, "slot"));
  else if (service.kind !== "workers") parts.push("no limit");
  if (service.usual_seconds !== null) parts.push(`${duration(service.usual_seconds)} usual`);
  const models = service.models.map((each) => each.model);
  if (models.length > 0) parts.push(models.length > 2 ? `${models.length} models loaded` : `${models.join(", ")} loaded`);
  if (service.paused) parts.push("paused");
  const open = Object.entries(service.health).filter(([, gate]) => gate.state !== "closed");
  if (open.length > 0) parts.push(open.map(([region]) => `${region || "service"} unavailable`).join(", "));
  return parts.join(" · ");
}
