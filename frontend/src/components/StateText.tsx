import type { JobSummary } from "../data/jobs";

/** "queued, step 3 of 4"; red only where something went wrong. */
export function StateText({ job }: { job: JobSummary }) {
  return <span class={isWrong(job.status) ? "wrong" : undefined}>{stateText(job)}</span>;
}

export function stateText(job: JobSummary): string {
  const many = job.total_steps > 1 && (job.status === "queued" || job.status === "running");
  return many ? `${job.status}, step ${Math.min(job.current_step_index + 1, job.total_steps)} of ${job.total_steps}` : job.status;
}

export const isWrong = (status: string): boolean => status === "failed" || status === "dead";
