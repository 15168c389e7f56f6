"""The definition of every metric, with the bucket bounds of its histogram."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]

Bounds = tuple[float, ...]

WAITING: Bounds = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 1800, 3600)
ANSWERING: Bounds = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Bucket bounds of histograms in seconds: for waits of users, and for operations of a process."""


class Metric(NamedTuple):
    name: str
    kind: Kind
    help: str
    labels: Labels = ()
    bounds: Bounds = WAITING


METRICS = (
    # --- the line ---
    Metric("fairlane_queue_depth", "gauge", "Jobs that wait, by tier.", ("tier",)),
    Metric("fairlane_oldest_age_seconds", "gauge", "How long the oldest waits.", ("tier",)),
    Metric(
        "fairlane_queue_wait_seconds",
        "histogram",
        "Waiting in line until a first attempt started.",
        ("service", "tier"),
    ),
    Metric(
        "fairlane_eta_error_seconds",
        "histogram",
        "How far a job's start was from the p50 that its owner was told first.",
        ("service", "tier"),
    ),
    Metric("fairlane_unrunnable", "gauge", "Jobs that no live worker can run."),
    Metric(
        "fairlane_jobs_promoted_total", "counter", "Promotions announced.", ("from_tier", "to_tier")
    ),
    # --- jobs ---
    Metric("fairlane_jobs_submitted_total", "counter", "Jobs accepted.", ("tier",)),
    Metric("fairlane_jobs_claimed_total", "counter", "Attempts started.", ("service",)),
    Metric(
        "fairlane_attempts_total",
        "counter",
        "Attempts ended, by the region they ran in.",
        ("service", "region", "outcome"),
    ),
    Metric(
        "fairlane_failovers_total",
        "counter",
        "Retries that left the region that failed.",
        ("service", "region"),
    ),
    Metric(
        "fairlane_circuit_breaker_open",
        "gauge",
        "1 if the circuit breaker of the region is open.",
        ("service", "region"),
    ),
    Metric("fairlane_jobs", "gauge", "Jobs in line, running and dead.", ("status",)),
    Metric(
        "fairlane_task_duration_seconds",
        "histogram",
        "From acceptance to the end.",
        ("tier", "status"),
    ),
    Metric(
        "fairlane_task_retries_total",
        "counter",
        "Attempts that are tried again.",
        ("tier", "fault"),
    ),
    Metric("fairlane_tasks_failed_total", "counter", "Jobs that ended badly.", ("reason",)),
    Metric("fairlane_tasks_dlq_total", "counter", "Jobs that became dead letters."),
    Metric(
        "fairlane_quality_checks_total",
        "counter",
        "Ended quality checks, by the checking service.",
        ("service", "verdict"),
    ),
    # --- workers ---
    Metric("fairlane_workers", "gauge", "Workers, by state.", ("status",)),
    Metric("fairlane_worker_capacity_used_ratio", "gauge", "Running work by offered capacity."),
    Metric(
        "fairlane_claim_seconds",
        "histogram",
        "Choosing and confirming work, without waiting for it.",
        bounds=ANSWERING,
    ),
    Metric("fairlane_heartbeat_seconds", "histogram", "Renewing leases.", bounds=ANSWERING),
    Metric(
        "fairlane_lease_expired_total",
        "counter",
        "Leases taken back: a worker not heard of, or out of time.",
    ),
    Metric(
        "fairlane_worker_heartbeat_failures_total",
        "counter",
        "Leases that ended because their worker was not heard of.",
    ),
    Metric(
        "fairlane_stale_writes_rejected_total", "counter", "Results under leases that were gone."
    ),
    # --- limits ---
    Metric("fairlane_slots_held", "gauge", "Slots taken.", ("pool",)),
    Metric("fairlane_slots_limit", "gauge", "Slots there are.", ("pool",)),
    # --- Celery ---
    Metric(
        "fairlane_celery_queue_tasks",
        "gauge",
        "Tasks of the balanced Celery queues.",
        ("queue", "state"),
    ),
    # --- requests ---
    Metric(
        "fairlane_http_request_seconds",
        "histogram",
        "Answering a request.",
        ("route", "method", "status"),
        ANSWERING,
    ),
    Metric(
        "fairlane_shed_total", "counter", "Requests, and jobs of batches, put off.", ("reason",)
    ),
    Metric("fairlane_auth_failures_total", "counter", "Requests without a key that holds."),
    # --- stores ---
    Metric("fairlane_ready", "gauge", "1 if this process takes jobs and hands them out."),
    Metric(
        "fairlane_db_pool_wait_seconds",
        "histogram",
        "Waiting for a connection, or for the writer of the file.",
        bounds=ANSWERING,
    ),
    Metric("fairlane_outbox_lag_seconds", "gauge", "How long the index has not been told."),
    Metric(
        "fairlane_index_drift_total",
        "counter",
        "Jobs whose place in the index was not the ledger's.",
    ),
    Metric("fairlane_ledger_imbalance", "gauge", "Credit operations and balances that are wrong."),
    Metric(
        "fairlane_clock_offset_seconds",
        "gauge",
        "How far this machine's clock is from the queue's.",
    ),
    Metric(
        "fairlane_pg_dead_tuples", "gauge", "Rows that PostgreSQL has yet to clean up.", ("table",)
    ),
    Metric(
        "fairlane_pg_xmin_age_seconds", "gauge", "Age of the oldest transaction that keeps them."
    ),
)
