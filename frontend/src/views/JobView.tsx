import { useEffect, useRef, useState } from "preact/hooks";
import { CopyButton } from "../components/CopyButton";
import { Header } from "../components/Header";
import { JobActions } from "../components/JobActions";
import { isFault, JobGantt, outcomeOf } from "../components/JobGantt";
import { Json, written } from "../components/Json";
import { loadExecutions, Matrix } from "../components/Matrix";
import { Notice, Refusal } from "../components/Notice";
import { StateText } from "../components/StateText";
import { Standing } from "../components/Standing";
import { useGet } from "../data/api";
import { useJobEvents } from "../data/job_events";
import { ENDED, serviceOf, type Execution, type Explanation, type JobDetail, type JobEvent, type Timeline } from "../data/jobs";
import { now, paused, watch } from "../data/live";
import { clock, duration, preciseClock, shortId } from "../format";
import { jobsLink } from "../router";
import { tierClass } from "../tiers";

const REFRESH_MS = 1_000;

/** One job: where it stands and why, what would help, and how its time was spent. */
export function JobView({ id }: { id: string }) {
  const path = `/api/v1/jobs/${encodeURIComponent(id)}`;
  const job = useGet<JobDetail>(path);
  const explanation = useGet<Explanation>(`${path}/explain`);
  const timeline = useGet<Timeline>(`${path}/timeline`);
  const events = useGet<JobEvent[]>(`${path}/events`);
  const [executions, setExecutions] = useState<Execution[]>([]);
  const listed = events.data ?? [];
  const refresh = useThrottled(() => {
    job.reload();
    explanation.reload();
    timeline.reload();
    events.reload();
  }, REFRESH_MS);
  const reloadCells = () => loadExecutions(id).then(setExecutions, () => setExecutions([]));
  useEffect(() => void reloadCells(), [id, job.data?.status]);
  useJobEvents(id, events.data === null ? null : (listed.at(-1)?.seq ?? 0), () => !paused.peek() && refresh());
  const waitsFor = serviceOf(listed) ?? job.data?.feature_name;
  useEffect(() => (waitsFor === undefined ? undefined : watch(`service:${waitsFor}`)), [waitsFor]);

  if (job.data === null) {
    return (
      <>
        <Header title="Job" />
        {job.problem ? <Refusal problem={job.problem} retry={job.reload} /> : <Notice>Loading the job.</Notice>}
      </>
    );
  }
  const shown = job.data;
  const ended = ENDED.has(shown.status);
  return (
    <>
      <Header title={shown.feature_name}>
        <CopyPill text={shown.job_id} />
        <a class={`pill ${tierClass(shown.priority)}`} href={jobsLink(`user:${shown.user_id ?? ""}`)}>
          <span class="tier-name">
            {shown.user_id ?? "no user"} · {shown.priority}
          </span>
        </a>
        <span class="pill">
          <StateText job={shown} />
        </span>
      </Header>
      <div class="columns">
        <div class="column">
          <section class="card" aria-label="Where it stands">
            <h2 class="card-title">Where it stands</h2>
            <Standing job={shown} explanation={explanation.data} timeline={timeline.data} service={waitsFor ?? ""} />
            <JobActions job={shown} onChange={refresh} />
          </section>
          {executions.length > 0 && <Matrix executions={executions} tier={tierClass(shown.priority)} onChange={() => void reloadCells()} />}
          {timeline.data && (
            <JobGantt timeline={timeline.data} now={ended ? 0 : now.value} tier={tierClass(shown.priority)} steps={shown.total_steps} eta={explanation.data?.eta ?? null} />
          )}
          <Events events={listed} />
        </div>
        <div class="column side">
          <Payload title="Input" value={shown.input_data} />
          <Outputs context={shown.context} />
          {timeline.data && <Attempts timeline={timeline.data} />}
          <About job={shown} />
        </div>
      </div>
    </>
  );
}

function CopyPill({ text }: { text: string }) {
  return (
    <span class="pill mono">
      <span title={text}>{shortId(text)}</span> <CopyButton text={text} />
    </span>
  );
}

function Events({ events }: { events: JobEvent[] }) {
  const newest = events.toReversed();
  return (
    <section class="card" aria-label="Events">
      <h2 class="card-title">Events</h2>
      {newest.length === 0 && <Notice>No events yet.</Notice>}
      <ol class="events">
        {newest.map((event) => (
          <li key={event.seq}>
            <time dateTime={event.at}>{preciseClock(event.at)}</time>
            <b>{event.type}</b>
            <span>{event.message}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Payload({ title, value }: { title: string; value: unknown }) {
  return (
    <section class="card" aria-label={title}>
      <header class="card-head">
        <h2>{title}</h2>
        <CopyButton text={written(value)} label="copy" />
      </header>
      <Json value={value} label={title} />
    </section>
  );
}

/** The output of each step; what the context holds beside them is shown on demand. */
function Outputs({ context }: { context: Record<string, unknown> }) {
  const steps = Object.entries(context).flatMap(([name, value]) => {
    const [, step, service] = /^step_(\d+)_(.+)$/.exec(name) ?? [];
    return step === undefined || name.endsWith("__attempts") ? [] : [{ title: `Output of step ${Number(step) + 1} · ${service}`, value }];
  });
  return (
    <>
      {steps.map(({ title, value }) => (
        <Payload title={title} value={value} />
      ))}
      {Object.keys(context).length > steps.length && (
        <details class="card">
          <summary>The whole context</summary>
          <Json value={context} label="Context" />
        </details>
      )}
    </>
  );
}

function Attempts({ timeline }: { timeline: Timeline }) {
  const tried = timeline.spans.filter((span) => span.kind === "running");
  if (tried.length === 0) return null;
  return (
    <section class="card" aria-label="Attempts">
      <h2 class="card-title">Attempts</h2>
      <ol class="attempts">
        {tried.map((span) => (
          <li>
            <span class="place">{span.attempt ?? "–"}</span>
            <span>
              {span.service}
              {span.region ? ` in ${span.region}` : ""}: <span class={isFault(span) ? "wrong" : undefined}>{outcomeOf(span)}</span>
              {span.note && <span class="soft"> {span.note}</span>}
            </span>
            <span>{span.to === null ? "" : duration((span.to - span.from) / 1000)}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function About({ job }: { job: JobDetail }) {
  const facts: [string, string][] = [
    ["submitted", clock(job.queued_at)],
    ["started", clock(job.started_at)],
    ["ended", clock(job.finished_at)],
    ["worker", job.assigned_worker_id ?? "–"],
    ["trace", job.trace_id],
    ["tags", job.tags.join(", ") || "–"],
    ["callback", job.callback_url ?? "–"],
  ];
  return (
    <section class="card" aria-label="About">
      <h2 class="card-title">About</h2>
      <dl class="about mono">
        {facts
          .filter(([, value]) => value !== "–" && value !== "")
          .map(([name, value]) => (
            <>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </>
          ))}
      </dl>
    </section>
  );
}

/** At most one run in this many milliseconds; the last call is never lost. */
function useThrottled(run: () => void, milliseconds: number): () => void {
  const latest = useRef(run);
  latest.current = run;
  const state = useRef<{ timer: ReturnType<typeof setTimeout> | undefined; again: boolean }>({ timer: undefined, again: false });
  useEffect(() => () => clearTimeout(state.current.timer), []);
  const go = () => {
    if (state.current.timer !== undefined) {
      state.current.again = true;
      return;
    }
    latest.current();
    state.current.timer = setTimeout(() => {
      state.current.timer = undefined;
      if (state.current.again) {
        state.current.again = false;
        go();
      }
    }, milliseconds);
  };
  return go;
}
