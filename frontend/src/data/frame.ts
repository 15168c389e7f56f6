/** What the server sends over the socket of the dashboard. Times are milliseconds since 1970. */

export interface Frame {
  at: number;
  version: string;
  simulated: { speed: number } | null;
  audience: "admin" | "tenant";
  tiers: Tier[];
  totals: Totals;
  alerts: Alert[];
  services: Record<string, Service>;
  workers: Record<string, WorkerRow>;
  celery: Record<string, { pending: number; running: number }> | null;
}

export interface Tier {
  name: string;
  target_seconds: number | null;
  share_in_target: number | null;
  started: number;
}

export interface Totals {
  slots_used: number;
  slots: number;
  waiting: number;
  delayed: number;
  running: number;
  started_per_second: number;
  /** Counts up while the server runs. */
  submitted: number;
  dead: number | null;
  finished: number;
}

export type Verdict = "ok" | "warning" | "wrong" | "unknown";

export interface Alert {
  check: string;
  verdict: Verdict;
  subject: string;
  text: string;
  command: string;
  page: string;
}

export interface Gate {
  state: "closed" | "open" | "half_open";
  until: number | null;
  running: number;
  limit: number | null;
  waiting: number;
}

export interface TierLoad {
  waiting: number;
  oldest_at: number | null;
  p50: number | null;
  p95: number | null;
  started_per_second: number;
  eta_p50: number | null;
  eta_p90: number | null;
}

export interface Slot {
  slot: number;
  state: "running" | "free" | "held";
  job: string | null;
  user: string | null;
  tier: string | null;
  model: string | null;
  region: string | null;
  since: number | null;
  usual_seconds: number | null;
  until: number | null;
}

export interface NextJob {
  job: string | null;
  user: string | null;
  tier: string;
  level: string;
  badges: string[];
  why: string;
  eta_p50: number | null;
  eta_p90: number | null;
}

export interface Service {
  kind: "called" | "workers" | "celery" | "callers";
  limit: number | null;
  running: number;
  paused: boolean;
  rate: string | null;
  provider: string | null;
  usual_seconds: number | null;
  started_per_second: number;
  health: Record<string, Gate>;
  models: { model: string; slots: number }[];
  tiers: Record<string, TierLoad>;
  p95: (number | null)[];
  slots: Slot[];
  slot_counts: Record<string, number>;
  next: NextJob[];
}

export interface WorkerRow {
  name: string;
  state: "active" | "draining" | "dead";
  running: number;
  capacity: number;
  region: string | null;
  services: string[];
  models: string[];
  version: string;
  last_seen: number;
}

export interface Residence {
  slot: number;
  region: string | null;
  from: number;
  to: number | null;
  model: string | null;
  tier: string | null;
  user: string | null;
  job: string | null;
}

export interface Share {
  user: string | null;
  served_seconds: number;
  due_seconds: number;
  waiting: number;
}

export interface ServiceDetail {
  service: string;
  next: NextJob[];
  residency: Residence[];
  shares: Share[];
  accuracy: { estimates: number; held: number | null } | null;
  arrivals_per_second: number;
}

export type Message =
  | { n: number; full: Frame }
  | { n: number; set: Record<string, unknown>; gone: string[] }
  | { topic: string; data: unknown };
