/** Bodies of the HTTP API that the page reads. Times are RFC 3339. */

export interface Eta {
  p50_seconds: number;
  p90_seconds: number;
}

export interface JobError {
  code: string;
  message: string;
  resumable: boolean;
}

export interface Progress {
  percent: number;
  text: string;
}

export type State = "queued" | "running" | "completed" | "failed" | "cancelled" | "dead";

export interface JobSummary {
  job_id: string;
  feature_name: string;
  user_id: string | null;
  status: State;
  priority: string;
  effective_priority: string;
  current_step_index: number;
  total_steps: number;
  queued_at: string;
  started_at: string | null;
  finished_at: string | null;
  assigned_worker_id: string | null;
  waited_seconds: number;
  progress: Progress | null;
  error: JobError | null;
  trace_id: string;
  tags: string[];
  callback_url: string | null;
}

export interface JobDetail extends JobSummary {
  input_data: unknown;
  context: Record<string, unknown>;
  execution_time_ms: number | null;
  last_error: { code: string | null; message: string | null; attempt: number; at: string } | null;
  position: number | null;
  eta: Eta | null;
  reason: string | null;
  quality: { step: string; checked_step: string; passed: boolean | null; reason: string }[];
}

export interface JobPage {
  jobs: JobSummary[];
  next: string | null;
}

export interface Reason {
  code: string;
  text: string;
  until: string | null;
}

export interface Explanation {
  position: number | null;
  eta: Eta | null;
  reasons: Reason[];
  next_promotion_at: string | null;
  changes: Reason[];
}

export type SpanKind = "waiting" | "backoff" | "unavailable" | "running" | "expected";

export interface Span {
  step: number;
  service: string;
  attempt: number | null;
  kind: SpanKind;
  from: number;
  to: number | null;
  region: string | null;
  outcome: string | null;
  note: string | null;
}

export interface Timeline {
  spans: Span[];
  totals: { running: number; waiting: number; backoff: number; unavailable: number };
}

export interface JobEvent {
  seq: number;
  type: string;
  at: string;
  message: string;
  data: Record<string, unknown>;
}

export interface Execution {
  execution_id: string;
  cell: Record<string, string>;
  status: State;
  region: string | null;
  attempts: number;
  error: JobError | null;
  progress: Progress | null;
  result: unknown;
}

export interface ExecutionPage {
  executions: Execution[];
  next: string | null;
}

export interface Quote {
  price: number;
  currency: string;
  balance: number;
  seconds_saved: { p50: number; p90: number } | null;
}

export interface BulkPreview {
  bulk_id: string;
  count: number;
  exact: boolean;
  by_state: Record<string, number>;
  sample: JobSummary[];
  left_out: { reason: string; count: number }[];
  expires_at: string;
}

/** `changed` jobs had changed since the preview, `skipped` ones do not allow the action. */
export interface BulkProgress {
  status: "previewed" | "running" | "done" | "interrupted";
  done: number;
  changed: number;
  skipped: number;
  failed: number;
  count: number;
}

export interface ServiceLimits {
  name: string;
  executor: string;
  limit: number;
  rate: number;
  waiting: number;
  paused: boolean;
  provider: string | null;
  regions: Record<string, number>;
}

export interface WaitFigures {
  p50: number | null;
  p95: number | null;
  share_in_target: number | null;
}

export interface Simulation {
  today: Record<string, WaitFigures>;
  then: Record<string, WaitFigures>;
  arrivals: number;
  seconds_simulated: number;
  seed: number;
  note: string | null;
}

export interface ApiKey {
  id: string;
  name: string;
  tenant: string;
  role: string;
  act_as: boolean;
  set_priority: boolean;
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
}

export interface AuditEntry {
  at: string;
  actor: string;
  action: string;
  target: string;
  before: string | null;
  after: string | null;
}

export interface Finding {
  check: string;
  verdict: "ok" | "warning" | "wrong" | "unknown";
  subject: string;
  text: string;
  figure: unknown;
  command: string;
  page: string;
  category: string;
}

export interface Place {
  status: State | "expired";
  position: number | null;
  eta: Eta | null;
  ahead: { jobs: number; seconds: number | null } | null;
  progress: Progress | null;
  feature_name: string;
  message: string | null;
  result?: unknown;
  error?: { message: string } | string | null;
}

export const ENDED: ReadonlySet<string> = new Set(["completed", "failed", "cancelled", "dead"]);

/** The service of the present step: the latest event that names one. */
export function serviceOf(events: JobEvent[]): string | undefined {
  const named = events.findLast((event) => typeof event.data["service"] === "string");
  return named?.data["service"] as string | undefined;
}
