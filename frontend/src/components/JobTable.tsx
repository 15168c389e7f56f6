import { useEffect, useRef } from "preact/hooks";
import type { JobSummary } from "../data/jobs";
import { clock, duration, shortId } from "../format";
import { jobLink } from "../router";
import { StateText } from "./StateText";
import { TierDot } from "./TierDot";

interface Props {
  jobs: JobSummary[];
  at: number;
  selected: ReadonlySet<string>;
  selectable: boolean;
  onToggle: (id: string) => void;
  onPeek: (place: number) => void;
}

export function JobTable({ jobs, at, selected, selectable, onToggle, onPeek }: Props) {
  const body = useRef<HTMLTableSectionElement>(null);
  useEffect(() => body.current?.rows[at]?.scrollIntoView({ block: "nearest" }), [at]);
  return (
    <div class="card flush">
      <table class="jobs">
        <caption class="visually-hidden">Jobs, newest first</caption>
        <thead>
          <tr>
            {selectable && <th scope="col" class="pick"><span class="visually-hidden">select</span></th>}
            <th scope="col">job</th>
            <th scope="col">user</th>
            <th scope="col">state</th>
            <th scope="col" class="right">waited</th>
            <th scope="col" class="right">submitted</th>
          </tr>
        </thead>
        <tbody ref={body}>
          {jobs.map((job, place) => (
            <tr
              key={job.job_id}
              class={place === at ? "at" : undefined}
              aria-selected={place === at}
              onClick={(event) => !(event.target as Element).closest("a, input, label") && onPeek(place)}
            >
              {selectable && (
                <td class="pick">
                  <input
                    type="checkbox"
                    aria-label={`select ${job.feature_name} ${shortId(job.job_id)}`}
                    checked={selected.has(job.job_id)}
                    onChange={() => onToggle(job.job_id)}
                  />
                </td>
              )}
              <td>
                <a href={jobLink(job.job_id)}>
                  <b>{job.feature_name}</b> <span class="soft mono job-id">{shortId(job.job_id)}</span>
                </a>
                {job.tags.map((tag) => (
                  <span class="tag">{tag}</span>
                ))}
              </td>
              <td>
                <span class="job-user">
                  <TierDot tier={job.priority} /> <span>{job.user_id ?? "no user"}</span>
                </span>
              </td>
              <td>
                <StateText job={job} />
                {job.error && <span class="soft error-text"> {job.error.message}</span>}
              </td>
              <td class="right">{duration(job.waited_seconds)}</td>
              <td class="right soft">
                <time dateTime={job.queued_at}>{clock(job.queued_at)}</time>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
