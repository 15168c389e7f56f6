import type { ServiceDetail } from "../data/frame";
import type { Explanation, JobDetail, Timeline } from "../data/jobs";
import { now, topics } from "../data/live";
import { clock, count, duration, ordinal, percent, range, secondsBetween, speed } from "../format";
import { serviceLink } from "../router";
import { isWrong } from "./StateText";

interface Props {
  job: JobDetail;
  explanation: Explanation | null;
  timeline: Timeline | null;
  service: string;
}

/** The big line says where a job stands; below it are the reasons, and what would help. */
export function Standing({ job, explanation, timeline, service }: Props) {
  return (
    <>
      <p class="standing">
        <b class={isWrong(job.status) ? "big wrong" : "big"}>{headline(job, service)}</b>{" "}
        {detail(job, explanation, timeline, service).map((part, place) => (
          <span class="soft">
            {place > 0 && "· "}
            {part}
          </span>
        ))}
      </p>
      {job.progress && job.status === "running" && <ProgressBar percent={job.progress.percent} text={job.progress.text} />}
      <ul class="reasons">
        {job.error && <li class="wrong">{job.error.message}</li>}
        {!job.error && job.last_error?.message && (
          <li>
            attempt {job.last_error.attempt} failed: {job.last_error.message}
          </li>
        )}
        {explanation?.reasons.filter((reason) => reason.code !== "promotion").map((reason) => (
          <li>
            {reason.text}
            {reason.until && speed.value === 1 ? `, until ${clock(reason.until)} at the latest` : ""}
          </li>
        ))}
        {job.status === "queued" && <li>{promotion(explanation)}</li>}
        {job.quality.map((verdict) => (
          <li class={verdict.passed === false ? "wrong" : undefined}>
            {verdict.passed === null ? "not checked" : verdict.passed ? "passed" : "rejected"}: {verdict.checked_step}
            {verdict.reason && `, ${verdict.reason}`}
          </li>
        ))}
      </ul>
      <Help explanation={explanation} />
    </>
  );
}

export function ProgressBar({ percent: value, text }: { percent: number; text: string }) {
  return (
    <div class="progress">
      <progress max={100} value={value} aria-label="progress" />
      <span class="soft">
        {Math.round(value)} % {text}
      </span>
    </div>
  );
}

function headline(job: JobDetail, service: string): string {
  switch (job.status) {
    case "queued":
      return job.position === null ? `Waits for ${service}` : `${ordinal(job.position)} for ${service}`;
    case "running":
      return `Runs on ${service}`;
    case "completed":
      return "Completed";
    case "cancelled":
      return "Cancelled";
    case "failed":
      return `Failed in ${service}`;
    case "dead":
      return `Gave up in ${service}`;
  }
}

function detail(job: JobDetail, explanation: Explanation | null, timeline: Timeline | null, service: string): string[] {
  if (job.status === "queued") {
    const eta = explanation?.eta ?? job.eta;
    const parts: string[] = [eta ? `starts in ${range(eta.p50_seconds, eta.p90_seconds)}` : "no estimate yet", accuracy(service)];
    return parts.filter((part) => part !== "");
  }
  if (job.status === "running") {
    const span = timeline?.spans.findLast((each) => each.kind === "running" && each.to === null);
    return span === undefined ? [] : [`for ${duration((now.value - span.from) / 1000)}`];
  }
  return job.finished_at === null ? [] : [`after ${duration(secondsBetween(job.queued_at, job.finished_at))}`];
}

/** How many of the past estimates of this service came true. */
function accuracy(service: string): string {
  const found = (topics.value[`service:${service}`] as ServiceDetail | undefined)?.accuracy;
  if (!found || found.held === null || found.estimates === 0) return "";
  return `${percent(found.held)} of the last ${count(found.estimates)} estimates held`;
}

function promotion(explanation: Explanation | null): string {
  const at = explanation?.next_promotion_at;
  if (!at) return "no promotion ahead";
  return `is promoted in ${duration(Math.max(0, (new Date(at).getTime() - now.value) / 1000))}`;
}

function Help({ explanation }: { explanation: Explanation | null }) {
  const changes = (explanation?.changes ?? []).filter((change) => !["skip", "resume", "replay"].includes(change.code));
  const texts = [...new Set(changes.map((change) => change.text))];
  if (texts.length === 0) return null;
  return (
    <>
      <h3>What would help</h3>
      <ul class="reasons">
        {texts.map((text) => (
          <li>
            {withoutRoute(text)}
            <ServiceOfRoute text={text} />
          </li>
        ))}
      </ul>
    </>
  );
}

function ServiceOfRoute({ text }: { text: string }) {
  const name = /\/admin\/services\/(\S+)$/.exec(text)?.[1];
  if (name === undefined) return null;
  return (
    <>
      : <a href={serviceLink(name)}>{name}</a>
    </>
  );
}

/** "a higher limit: PUT /admin/…" tells programs what to call; a person has the link beside it. */
const withoutRoute = (text: string): string => text.replace(/: (?:PUT|POST|DELETE) \/\S+$/, "");
