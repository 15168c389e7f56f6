import { useEffect, useRef, useState } from "preact/hooks";
import { Bulk } from "../components/Bulk";
import { Header } from "../components/Header";
import { JobTable } from "../components/JobTable";
import { Notice, Refusal } from "../components/Notice";
import { Peek } from "../components/Peek";
import { SubmitForm } from "../components/SubmitForm";
import { useGet } from "../data/api";
import type { JobPage } from "../data/jobs";
import { frame } from "../data/live";
import { mayChange } from "../data/session";
import { clock, count } from "../format";
import { useKeys } from "../keys";
import { jobLink, jobsLink, navigate, query } from "../router";
import { DEAD_LETTERS, parameters, parsedSearch, STATES, written } from "../search";

const PAGE = 50;

/** Jobs by qualifiers. The list stands still: newer jobs are offered, never pushed in. */
export function JobsView() {
  const text = query.value.get("q") ?? "";
  const cursor = query.value.get("cursor");
  const { filter, unknown } = parsedSearch(text);
  const wanted = new URLSearchParams({ ...parameters(filter), limit: String(PAGE) });
  if (cursor !== null) wanted.set("cursor", cursor);
  const page = useGet<JobPage>(`/api/v1/jobs?${wanted}`);
  const jobs = page.data?.jobs ?? [];
  const [at, setAt] = useState(-1);
  const [peeking, setPeeking] = useState(false);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const newer = useNewer(page.data, cursor === null);
  useEffect(() => {
    setAt(-1);
    setPeeking(false);
    setSelected(new Set());
  }, [text, cursor]);

  const chosen = jobs[at];
  const move = (step: number) => {
    if (jobs.length === 0) return;
    setAt((old) => Math.max(0, Math.min(jobs.length - 1, old + step)));
    setPeeking(true);
  };
  const toggle = (id: string) => {
    const next = new Set(selected);
    if (!next.delete(id)) next.add(id);
    setSelected(next);
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    x: () => chosen && toggle(chosen.job_id),
    r: () => page.reload(),
    ...(chosen && peeking ? { Enter: () => navigate(jobLink(chosen.job_id)) } : {}),
    ...(peeking ? { Escape: () => setPeeking(false) } : {}),
  });

  return (
    <>
      <Header title={text === DEAD_LETTERS ? "Dead letters" : "Jobs"} />
      <nav class="filters" aria-label="Saved searches">
        <SavedSearch name="all" text="" current={text} />
        {STATES.map((state) => (
          <SavedSearch name={state === "dead" ? "dead letters" : state} text={`status:${state}`} current={text} />
        ))}
        {mayChange.value && (
          <a class="button primary" href={`/jobs?${new URLSearchParams({ ...(text ? { q: text } : {}), new: "1" })}`}>
            Submit a job
          </a>
        )}
      </nav>
      {unknown.length > 0 && (
        <Notice>
          {unknown.join(", ")} is not known. Known: status, user, service, feature, tier, tag, region, model.
        </Notice>
      )}
      {mayChange.value && page.data && (
        <Bulk filter={filter} jobs={jobs} selected={selected} onDone={() => { setSelected(new Set()); page.reload(); }} />
      )}
      <div class="list-state" role="status">
        {page.data && (
          <button class="quiet" onClick={page.reload} disabled={selected.size > 0}>
            {selected.size > 0
              ? `${count(selected.size)} selected; the list stands still`
              : newer > 0
                ? `${count(newer)} newer${written(filter) === "" ? "" : " in all"}, show`
                : `as of ${clock(page.data === null ? null : loadedAt(page.data))}, reload`}
          </button>
        )}
      </div>
      <div class={peeking && chosen ? "list-and-peek" : undefined}>
        {page.problem && <Refusal problem={page.problem} retry={page.reload} />}
        {page.data === null && !page.problem && <Notice>Loading jobs.</Notice>}
        {page.data !== null && jobs.length === 0 && (
          <Notice>{text === DEAD_LETTERS ? "No dead letters: nothing has been given up." : "No job matches."}</Notice>
        )}
        {jobs.length > 0 && (
          <JobTable
            jobs={jobs}
            at={at}
            selected={selected}
            onToggle={toggle}
            onPeek={(place) => {
              setAt(place);
              setPeeking(true);
            }}
            selectable={mayChange.value}
          />
        )}
        {peeking && chosen && <Peek key={chosen.job_id} id={chosen.job_id} onClose={() => setPeeking(false)} />}
      </div>
      <nav class="pager" aria-label="Pages">
        {cursor !== null && <a class="button" href={jobsLink(text)}>First page</a>}
        {page.data?.next && (
          <a class="button" href={`/jobs?${new URLSearchParams({ ...(text ? { q: text } : {}), cursor: page.data.next })}`}>
            Older jobs
          </a>
        )}
      </nav>
      {query.value.get("new") !== null && <SubmitForm onClose={() => navigate(text ? jobsLink(text) : "/jobs", { replace: true })} />}
    </>
  );
}

function SavedSearch({ name, text, current }: { name: string; text: string; current: string }) {
  return (
    <a class="chip" href={text === "" ? "/jobs" : jobsLink(text)} aria-current={text === current ? "true" : undefined}>
      {name}
    </a>
  );
}

/** How many jobs have been submitted since the page was loaded, from the totals of the frame. */
function useNewer(page: JobPage | null, isFirst: boolean): number {
  const start = useRef<{ page: JobPage | null; submitted: number | null }>({ page: null, submitted: null });
  const totals = frame.value?.totals;
  const submitted = totals?.submitted ?? null;
  if (start.current.page !== page || start.current.submitted === null) start.current = { page, submitted };
  if (!isFirst || page === null || submitted === null || start.current.submitted === null) return 0;
  return Math.max(0, submitted - start.current.submitted);
}

const loaded = new WeakMap<object, number>();
function loadedAt(page: JobPage): number {
  const known = loaded.get(page) ?? Date.now();
  loaded.set(page, known);
  return known;
}
