"""Every metric there is."""

from __future__ import annotations

from fairlane.telemetry.metrics import Metric

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
    Metric("fairlane_unrunnable", "gauge", "Jobs that nobody alive can run."),
    Metric(
        "fairlane_jobs_promoted_total", "counter", "Promotions announced.", ("from_tier", "to_tier")
    ),
    # --- jobs ---
    Metric("fairlane_jobs_submitted_total", "counter", "Jobs accepted.", ("tier",)),
    Metric("fairlane_jobs_claimed_total", "counter", "Attempts started.", ("service",)),
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
    # --- workers ---
    Metric("fairlane_workers", "gauge", "Workers, by state.", ("status",)),
    Metric("fairlane_worker_capacity_used_ratio", "gauge", "Running work by offered capacity."),
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
)
