import { useGet } from "../data/api";
import { serviceOf, type Explanation, type JobDetail, type JobEvent } from "../data/jobs";
import { watch } from "../data/live";
import { useEffect } from "preact/hooks";
import { jobLink } from "../router";
import { JobActions } from "./JobActions";
import { Json } from "./Json";
import { Notice, Refusal } from "./Notice";
import { Standing } from "./Standing";

/** A look at a job beside the list. */
export function Peek({ id, onClose }: { id: string; onClose: () => void }) {
  const path = `/api/v1/jobs/${encodeURIComponent(id)}`;
  const job = useGet<JobDetail>(path);
  const explanation = useGet<Explanation>(`${path}/explain`);
  const events = useGet<JobEvent[]>(`${path}/events`);
  const service = serviceOf(events.data ?? []) ?? job.data?.feature_name;
  useEffect(() => (service === undefined ? undefined : watch(`service:${service}`)), [service]);
  const shown = job.data;
  return (
    <aside class="card peek" aria-label="Peek">
      <header class="card-head">
        <h2>{shown ? <a href={jobLink(id)}>{shown.feature_name}</a> : "Job"}</h2>
        <button class="quiet" onClick={onClose} aria-label="close the peek">
          Esc
        </button>
      </header>
      {job.problem && <Refusal problem={job.problem} retry={job.reload} />}
      {!shown && !job.problem && <Notice>Loading the job.</Notice>}
      {shown && (
        <>
          <Standing job={shown} explanation={explanation.data} timeline={null} service={service ?? ""} />
          <JobActions job={shown} onChange={job.reload} />
          <h3>Input</h3>
          <Json value={shown.input_data} label="Input" />
        </>
      )}
    </aside>
  );
}
