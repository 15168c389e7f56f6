import type { Eta, Span, SpanKind, Timeline } from "../data/jobs";
import { duration, range, speed } from "../format";
import { Figure } from "./Figure";

const NAMES: Record<SpanKind, string> = {
  waiting: "in line",
  running: "running",
  backoff: "back-off",
  unavailable: "service unavailable",
  expected: "expected",
};
const SHOWN_NAMES: SpanKind[] = ["waiting", "running", "backoff", "unavailable", "expected"];
const LABEL_SHARE = 0.09;

interface Props {
  timeline: Timeline;
  now: number;
  tier: string;
  steps: number;
  eta: Eta | null;
}

/** How the time of a job was spent, step by step, with waiting split by its cause. */
export function JobGantt({ timeline, now, tier, steps, eta }: Props) {
  const spans = timeline.spans;
  if (spans.length === 0) return null;
  const expected = spans.find((span) => span.kind === "expected");
  const end = (span: Span) => span.to ?? Math.max(expected?.from ?? now, span.from);
  const first = Math.min(...spans.map((span) => span.from));
  const last = Math.max(...spans.map(end));
  const length = Math.max(1, last - first);
  const rows = Array.from({ length: Math.max(steps, ...spans.map((span) => span.step + 1)) }, (_, step) =>
    spans.filter((span) => span.step === step),
  );
  return (
    <Figure
      title="How the time was spent"
      detail={spent(timeline)}
      columns={["step", "service", "attempt", "what", "seconds", "outcome", "note"]}
      rows={spans.map((span) => [
        span.step + 1,
        span.service,
        span.attempt ?? "–",
        NAMES[span.kind],
        duration((end(span) - span.from) / 1000),
        span.outcome ?? "",
        span.note ?? "",
      ])}
    >
      <div class={`gantt ${tier}`}>
        {rows.map((row, step) => (
          <div class={row.length === 0 ? "gantt-row soft" : "gantt-row"} key={step}>
            <span class="place">{step + 1}</span>
            <span class="gantt-name">{row[0]?.service ?? "to come"}</span>
            <div class="gantt-track">
              {row.map((span) => {
                const share = (end(span) - span.from) / length;
                return (
                  <i
                    class={`span ${span.kind} ${isFault(span) ? "failed" : ""}`}
                    title={sentence(span, (end(span) - span.from) / 1000)}
                    style={{ "--from": String((span.from - first) / length), "--share": String(share) }}
                  >
                    {share > LABEL_SHARE ? label(span, (end(span) - span.from) / 1000, eta) : ""}
                  </i>
                );
              })}
            </div>
            <span class="gantt-state">{fate(row)}</span>
          </div>
        ))}
      </div>
      <p class="legend">
        {SHOWN_NAMES.filter((kind) => spans.some((span) => span.kind === kind)).map((kind) => (
          <span>
            <i class={`span sample ${kind} ${tier}`} /> {NAMES[kind]}
          </span>
        ))}
      </p>
    </Figure>
  );
}

function spent({ totals }: Timeline): string {
  const parts: [number, string][] = [
    [totals.running, "running"],
    [totals.waiting, "in line"],
    [totals.unavailable, "service unavailable"],
    [totals.backoff, "back-off"],
  ];
  const sum = parts.reduce((all, [seconds]) => all + seconds, 0);
  const told = parts.filter(([seconds]) => seconds * speed.value >= 0.05).map(([seconds, name]) => `${duration(seconds)} ${name}`);
  return told.length === 0 ? "" : `${duration(sum)}: ${told.join(", ")}`;
}

function label(span: Span, seconds: number, eta: Eta | null): string {
  if (span.kind === "expected") return eta === null ? "" : range(eta.p50_seconds, eta.p90_seconds);
  if (span.kind === "backoff") return "back-off";
  if (span.kind === "unavailable") return "unavailable";
  return span.kind === "running" ? duration(seconds) : "";
}

function sentence(span: Span, seconds: number): string {
  const attempt = span.attempt === null || span.attempt <= 1 ? "" : `, attempt ${span.attempt}`;
  const rest = [span.outcome, span.note, span.region].filter((part) => part);
  return [`${span.service}: ${NAMES[span.kind]} ${duration(seconds)}${attempt}`, ...rest].join(", ");
}

/** An attempt that ended with a fault. */
export const isFault = (span: Span): boolean => span.kind === "running" && span.outcome !== null && span.outcome !== "completed";

export const outcomeOf = (span: Span): string => span.outcome?.replaceAll("_", " ") ?? (span.to === null ? "running" : "ended");

function fate(row: Span[]): string {
  const past = row.filter((span) => span.kind !== "expected");
  const last = past.at(-1);
  if (last === undefined) return "";
  const attempts = Math.max(...past.map((span) => span.attempt ?? 1));
  const state = last.kind === "running" ? outcomeOf(last) : "waiting";
  return attempts > 1 ? `${state}, attempt ${attempts}` : state;
}
