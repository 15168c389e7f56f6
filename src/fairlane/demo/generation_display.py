"""The picture of the generation demo: the GPU, the tiers, the front of the queue, the skips."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fairlane.demo.demo import Status
from fairlane.demo.screen import ranks, table, wrapped
from fairlane.demo.visitors import TIER_SHARES, Visits
from fairlane.demo.worker_log import WorkerLog, loads_needed

TIERS = tuple(TIER_SHARES)
LIMITS = {
    "too_many_pending": "pending",
    "too_many_this_hour": "per hour",
    "duration_too_long": "duration",
    "queue_full": "queue full",
}
"""What the display calls the limits that refuse, by code."""

ROWS = 3
"""Jobs at the front of the queue that are shown."""

BAR = 20


class Picture(NamedTuple):
    """All that is shown: what the API told, what the users observed, what the GPU printed."""

    status: Status
    visits: Visits
    gpu: WorkerLog
    pid: int | None
    """The process id of the worker, None while it is dead."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        return list(self.status.get("jobs", ()))

    @property
    def running(self) -> dict[str, Any] | None:
        return next((row for row in self.rows if row["status"] == "processing"), None)

    def tier(self, row: dict[str, Any]) -> str:
        """The tier of a job, also after a skip. Jobs of other programs have the one that is
        told."""
        known = self.visits.accepted.get(row["id"])
        return known.tier if known else str(row["priority"])


def tables(seen: Picture) -> Group:
    return Group(_gpu(seen), _tiers(seen), _front(seen), _credits(seen), _note())


def line(seen: Picture, seconds: float) -> str:
    visits = seen.visits
    waiting = ", ".join(f"{tier} {n}" for tier, n in _waiting(seen).items() if n)
    return (
        f"{seconds:5.0f} s  {len(visits.accepted)} accepted, {visits.refused.total()} refused "
        f"({refusals(visits) or 'none'}), {visits.waiting} waiting ({waiting or 'none'}), "
        f"{len(seen.gpu.done)} done; GPU: {doing(seen)}; {loads(seen.visits, seen.gpu)}; "
        f"{paid_skips(visits)}"
    )


def doing(seen: Picture) -> str:
    """What the GPU does."""
    if seen.pid is None:
        return "its worker is dead"
    if model := seen.gpu.loading(seen.pid):
        return f"loads {model}"
    row, job = seen.running, seen.gpu.runs(seen.pid)
    if not job:
        return "idle"
    model = seen.gpu.models[job]
    if row is None or row["id"] != job:
        return f"{model}, begins"
    return f"{model} for {seen.tier(row)}, {row['progress_pct']} %"


def loads(visits: Visits, gpu: WorkerLog) -> str:
    needed = loads_by_arrival(visits, gpu)
    return f"{gpu.loads} loads for {len(gpu.models)} jobs; order of arrival: {needed} loads"


def loads_by_arrival(visits: Visits, gpu: WorkerLog) -> int:
    """How often a GPU would have loaded a model if it had run as many jobs in the order in which
    they were accepted. Job ids (UUIDv7) are in that order."""
    models = {job: sent.model for job, sent in visits.accepted.items()} | gpu.models
    order = sorted(job for job in models if job in gpu.models or job not in visits.cancelled)
    return loads_needed(models[job] for job in order[: len(gpu.models)])


def refusals(visits: Visits, tier: str | None = None) -> str:
    """How many requests of a tier, or of all tiers, each limit refused."""
    found = Counter[str]()
    for (refused, code), n in visits.refused.items():
        if tier in {None, refused}:
            found[LIMITS.get(code, code)] += n
    return ", ".join(f"{n} {name}" for name, n in found.items())


def waits_of(tier: str, visits: Visits, gpu: WorkerLog) -> tuple[str, str]:
    """Seconds that jobs of this tier waited until the GPU began: p50 and p95."""
    jobs = visits.accepted.items()
    begun = [
        (gpu.begun[job], sent.at) for job, sent in jobs if sent.tier == tier and job in gpu.begun
    ]
    return ranks([max(0.0, at - accepted) for at, accepted in begun])


def _waiting(seen: Picture) -> Counter[str]:
    return Counter(seen.tier(row) for row in seen.rows if row["status"] == "queued")


def _gpu(seen: Picture) -> Text:
    row = seen.running
    percent = row["progress_pct"] if row and seen.gpu.runs(seen.pid) == row["id"] else 0
    full = round(BAR * percent / 100)
    shown = Text.assemble("\nGPU ", ("■" * full, "green"), "□" * (BAR - full), " ")
    return shown.append(doing(seen), "bold").append(f"\n{loads(seen.visits, seen.gpu)}")


def _tiers(seen: Picture) -> Table:
    found = table(("tier", "refused"), ("accepted", "waiting", "done", "wait p50 s", "p95 s"))
    visits, waiting = seen.visits, _waiting(seen)
    accepted = Counter(job.tier for job in visits.accepted.values())
    done = Counter(visits.accepted[job].tier for job in seen.gpu.done if job in visits.accepted)
    for tier in TIERS:
        counts = (accepted[tier], waiting[tier], done[tier])
        waits = waits_of(tier, visits, seen.gpu)
        found.add_row(tier, refusals(visits, tier) or "–", *map(str, counts), *waits)
    return found


def _front(seen: Picture) -> Table:
    found = table(("next", "tier", "model", "job"), ("seconds",))
    waiting = [row for row in seen.rows if row["status"] == "queued"]
    for n in range(ROWS):
        if n >= len(waiting):
            found.add_row(str(n + 1), "", "", "", "")
            continue
        row = waiting[n]
        tier = seen.tier(row) + (" (paid skip)" if row["skipped"] else "")
        found.add_row(str(n + 1), tier, row["model"], row["id"], f"{row['duration']:g}")
    return found


def paid_skips(visits: Visits) -> str:
    return f"paid skips: {visits.skips} for {visits.paid} aura, {visits.refunded} aura refunded"


def _credits(seen: Picture) -> Text:
    return Text(f"{paid_skips(seen.visits)}; cancelled jobs: {len(seen.visits.cancelled)}")


def _note() -> Text:
    return wrapped(
        "Look at: better tiers wait less, and no tier waits for ever; a paid skip is next; the GPU "
        "changes its model less often than in order of arrival.",
        "dim",
    )
