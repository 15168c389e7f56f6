import { useEffect, useState } from "preact/hooks";
import { call, get } from "../data/api";
import type { BulkPreview, BulkProgress, JobSummary } from "../data/jobs";
import { isAdmin } from "../data/session";
import { count, plural, shortId } from "../format";
import { parameters, written, type Search } from "../search";
import { attempt, say } from "./Announcements";
import { Confirm } from "./Confirm";
import { DataTable } from "./DataTable";
import { Dialog } from "./Dialog";

type Action = "cancel" | "replay" | "resume" | "purge";

const ACTIONS: Record<Action, { name: string; effect: string; undo: string; states: string[] }> = {
  cancel: { name: "Cancel", effect: "end at once", undo: "A cancelled job cannot be brought back; submit it again.", states: ["queued", "running"] },
  replay: { name: "Replay", effect: "run again with all attempts", undo: "Cancel them to undo this.", states: ["failed", "dead"] },
  resume: { name: "Resume", effect: "go on from the failed step", undo: "Cancel them to undo this.", states: ["failed"] },
  purge: { name: "Purge", effect: "be deleted", undo: "A deleted job cannot be brought back.", states: ["dead"] },
};
const PROGRESS_MS = 500;

interface Props {
  filter: Search["filter"];
  jobs: JobSummary[];
  selected: ReadonlySet<string>;
  onDone: () => void;
}

/** Acts on the selected jobs, or on everything that the search matches, after a preview. */
export function Bulk({ filter, jobs, selected, onDone }: Props) {
  const [action, setAction] = useState<Action | null>(null);
  const status = filter.status ?? "";
  const offered = (Object.keys(ACTIONS) as Action[]).filter((each) => {
    if (selected.size > 0) return each !== "purge" && jobs.some((job) => selected.has(job.job_id) && ACTIONS[each].states.includes(job.status));
    return isAdmin.value && written(filter) !== "" && ACTIONS[each].states.some((state) => status === "" || status.split(",").includes(state)) && (each !== "purge" || status === "dead");
  });
  if (offered.length === 0) return null;
  return (
    <div class="bulk">
      <span class="soft">{selected.size > 0 ? `With ${plural(selected.size, "selected job")}:` : "With everything that matches:"}</span>
      {offered.map((each) => (
        <button class={each === "purge" || each === "cancel" ? "danger" : undefined} onClick={() => setAction(each)}>
          {ACTIONS[each].name}
          {selected.size > 0 ? "" : " all…"}
        </button>
      ))}
      {action !== null && selected.size > 0 && (
        <SelectedDialog action={action} jobs={jobs.filter((job) => selected.has(job.job_id))} onDone={onDone} onClose={() => setAction(null)} />
      )}
      {action !== null && selected.size === 0 && (
        <PreviewDialog action={action} filter={filter} onDone={onDone} onClose={() => setAction(null)} />
      )}
    </div>
  );
}

function SelectedDialog({ action, jobs, onDone, onClose }: { action: Action; jobs: JobSummary[]; onDone: () => void; onClose: () => void }) {
  const { name, effect, undo, states } = ACTIONS[action];
  const fitting = jobs.filter((job) => states.includes(job.status));
  const run = async () => {
    let changed = 0;
    let refused = "";
    for (const job of fitting) {
      const path = `/api/v1/jobs/${encodeURIComponent(job.job_id)}`;
      try {
        await (action === "cancel" ? call("DELETE", path) : call("POST", `${path}/${action}`));
        changed += 1;
      } catch (error) {
        refused = error instanceof Error ? ` ${error.message}` : "";
      }
    }
    say(`${plural(changed, "job")} of ${count(fitting.length)} changed.${refused}`, { bad: refused !== "" });
    onDone();
  };
  return (
    <Confirm title={`${name} ${plural(fitting.length, "job")}?`} action={`${name} ${count(fitting.length)}`} danger={action === "cancel"} onConfirm={run} onClose={onClose}>
      <p>
        They will {effect}. {undo}
      </p>
      {fitting.length < jobs.length && <p>{plural(jobs.length - fitting.length, "selected job")} in another state will be left alone.</p>}
    </Confirm>
  );
}

function PreviewDialog({ action, filter, onDone, onClose }: { action: Action; filter: Search["filter"]; onDone: () => void; onClose: () => void }) {
  const { name, effect, undo } = ACTIONS[action];
  const [preview, setPreview] = useState<BulkPreview | null>(null);
  const [progress, setProgress] = useState<BulkProgress | null>(null);
  const [refused, setRefused] = useState("");
  useEffect(() => {
    call<BulkPreview>("POST", "/admin/bulk/preview", { action, filter: bulkFilter(filter) }).then(setPreview, (error: Error) => setRefused(error.message));
  }, []);
  const running = progress !== null && progress.status !== "done" && progress.status !== "interrupted";
  useEffect(() => {
    if (!running || preview === null) return;
    const timer = setInterval(() => {
      get<BulkProgress>(`/admin/bulk/${preview.bulk_id}`).then((found) => {
        setProgress(found);
        if (found.status === "done" || found.status === "interrupted") onDone();
      }, (error: Error) => setRefused(error.message));
    }, PROGRESS_MS);
    return () => clearInterval(timer);
  }, [running, preview]);
  const confirm = async () => {
    if (preview === null) return;
    setProgress({ status: "running", done: 0, changed: 0, skipped: 0, failed: 0, count: preview.count });
    if (!(await attempt(() => call("POST", `/admin/bulk/${preview.bulk_id}`), "It has begun."))) setProgress(null);
  };
  const total = preview === null ? "" : `${preview.exact ? "" : "more than "}${plural(preview.count, "job")}`;
  return (
    <Dialog title={`${name} all: ${written(filter)}`} onClose={onClose} wide>
      {refused && <p class="wrong" role="alert">{refused}</p>}
      {preview === null && !refused && <p class="soft">Counting what would change.</p>}
      {preview !== null && progress === null && (
        <div class="stack">
          <p>
            <b class="big">{total}</b> <span class="soft">would {effect}</span>
          </p>
          <p>
            {Object.entries(preview.by_state).map(([state, jobs]) => `${count(jobs)} ${state}`).join(", ")}. {undo} Jobs that change
            in the meantime are left alone.
          </p>
          {preview.left_out.map((left) => (
            <p class="soft">
              Left out: {plural(left.count, "job")}, {left.reason}
            </p>
          ))}
          <DataTable
            caption={`The first ${count(preview.sample.length)}`}
            columns={["job", "user", "state"]}
            rows={preview.sample.map((job) => [`${job.feature_name} ${shortId(job.job_id)}`, job.user_id ?? "no user", job.status])}
          />
          <div class="actions">
            <button class={action === "purge" || action === "cancel" ? "primary danger" : "primary"} disabled={preview.count === 0} onClick={() => void confirm()}>
              {name} {total}
            </button>
            <button onClick={onClose}>Keep as it is</button>
          </div>
        </div>
      )}
      {progress !== null && (
        <div class="stack" role="status">
          <progress max={Math.max(1, progress.count)} value={progress.done + progress.changed + progress.skipped + progress.failed} aria-label="progress" />
          <p>
            {count(progress.done)} done, {count(progress.changed + progress.skipped)} left alone, {count(progress.failed)} failed of{" "}
            {count(progress.count)}.
          </p>
          {progress.status === "interrupted" && (
            <p class="wrong" role="alert">
              The server that ran it ended. Close this and preview the action again for the rest.
            </p>
          )}
          <div class="actions">
            <button onClick={onClose}>{running ? "Close; it goes on" : "Close"}</button>
          </div>
        </div>
      )}
    </Dialog>
  );
}

/** Several states are a list. */
function bulkFilter(filter: Search["filter"]): Record<string, string | string[]> {
  const { status, ...others } = parameters(filter);
  return status === undefined ? others : { ...others, status: status.split(",") };
}
