"""Bulk actions: one action on all jobs that match a filter. A preview says what would happen and
remembers the jobs with their revisions; the execution leaves jobs alone that changed since.

A process that runs one writes it at least every few seconds (heartbeat). If it does not, another
process marks the action as interrupted. Each write names the version it replaces, so that a process
that was only slow learns of it with its next write and stops."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import orjson

from fairlane.background import end_all
from fairlane.engine import Engine
from fairlane.errors import FairlaneError, NotFound, WrongState
from fairlane.ledger.bulk_actions import BulkAudit, BulkRow
from fairlane.ledger.messages import Filter
from fairlane.model.job import Job
from fairlane.model.state import State
from fairlane.units import SECOND

log = logging.getLogger("fairlane.api")

MAX_JOBS = 10_000
"""The most jobs that are looked at in a preview, and changed by one bulk action."""

PAGE, BATCH, SAMPLE = 1_000, 1_000, 20
PREVIEW_MICROSECONDS = 300 * SECOND
RECORD_MICROSECONDS = 86_400 * SECOND
"""A preview can be confirmed for 5 minutes; a bulk action can be looked up for a day."""

HEARTBEAT_MICROSECONDS = 5 * SECOND
INTERRUPTED_MICROSECONDS = 30 * SECOND
"""A running action is written every 5 s. After 30 s without a write it is interrupted."""

VERBS = {"running": "began", "done": "ended", "interrupted": "interrupted"}

ELIGIBLE = {
    "cancel": frozenset({State.QUEUED, State.RUNNING}),
    "resume": frozenset({State.FAILED}),
    "replay": frozenset({State.FAILED, State.DEAD}),
    "purge": frozenset({State.DEAD}),
}


class BulkPreview(NamedTuple):
    id: str
    jobs: list[Job]
    is_exact: bool
    left_out: Counter[str]
    until: int


@dataclass(slots=True)
class BulkAction:
    """`jobs` are the (id, revision) pairs of the preview. `until` is when its record may be
    deleted, which also identifies the version."""

    id: str
    tenant: str
    actor: str
    action: str
    filter: str
    until: int
    jobs: list[tuple[str, int]]
    status: str = "previewed"
    done: int = 0
    changed: int = 0
    skipped: int = 0
    failed: int = 0
    count: int = field(default=0)

    @property
    def written_at(self) -> int:
        """When a confirmed action was last written."""
        return self.until - RECORD_MICROSECONDS


class Replaced(Exception):
    """Another process wrote the bulk action since this one read it."""


class BulkActions:
    """Runs bulk actions in the background. Their state is in the ledger, so that every process can
    confirm and report them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        await end_all(self._tasks)

    async def preview(self, action: str, wanted: Filter, actor: str) -> BulkPreview:
        now = self._engine.clock.now()
        jobs: list[Job] = []
        left_out = Counter[str]()
        after, seen = None, 0
        while seen < MAX_JOBS:
            page = await self._engine.list_jobs(wanted, after, PAGE)
            seen += len(page.jobs)
            for job in page.jobs:
                reason = _left_out(action, job)
                if reason is None:
                    jobs.append(job)
                else:
                    left_out[reason] += 1
            after = page.next
            if after is None:
                break
        bulk = BulkAction(
            id=secrets.token_hex(8),
            tenant=wanted.tenant or "",
            actor=actor,
            action=action,
            filter=_text(wanted),
            until=now + PREVIEW_MICROSECONDS,
            jobs=[(job.id, job.rev) for job in jobs],
            count=len(jobs),
        )
        await self._write(bulk, bulk.until)
        return BulkPreview(bulk.id, jobs, after is None, left_out, bulk.until)

    async def get(self, bulk_id: str, tenant: str) -> BulkAction:
        """Get a bulk action. One that no process runs any more is marked as interrupted."""
        bulk = await self._read(bulk_id, tenant)
        silent = self._engine.clock.now() - bulk.written_at
        if bulk.status != "running" or silent < INTERRUPTED_MICROSECONDS:
            return bulk
        try:
            await self._end(bulk, "interrupted")
        except Replaced:
            return await self._read(bulk_id, tenant)
        return bulk

    async def _read(self, bulk_id: str, tenant: str) -> BulkAction:
        found = await self._engine.bulk_records.get(bulk_id, tenant)
        if found is None:
            raise NotFound("bulk action", bulk_id)
        until, text = found
        return BulkAction(**{**orjson.loads(text), "until": until})

    async def confirm(self, bulk_id: str, tenant: str) -> BulkAction:
        """Execute a preview, once, however often it is confirmed."""
        bulk, now = await self.get(bulk_id, tenant), self._engine.clock.now()
        if bulk.status != "previewed":
            return bulk
        if now >= bulk.until:
            raise NotFound("bulk action", bulk_id)
        if await self._engine.api_keys.redeem(f"bulk {bulk_id}", bulk.until, now):
            bulk.status = "running"
            await self._save(bulk, f"{bulk.count} jobs")
            task = asyncio.create_task(self._run(bulk))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return bulk

    async def _run(self, bulk: BulkAction) -> None:
        try:
            for start in range(0, len(bulk.jobs), BATCH):
                await self._do(bulk, bulk.jobs[start : start + BATCH])
                await self._save(bulk)
            await self._end(bulk, "done")
        except Replaced:
            log.warning("a bulk action was interrupted", extra={"bulk_id": bulk.id})
        except asyncio.CancelledError:
            await self._end(bulk, "interrupted")
            raise
        except Exception:
            log.exception("a bulk action stopped", extra={"bulk_id": bulk.id})
            bulk.failed += len(bulk.jobs) - _handled(bulk)
            await self._end(bulk, "done")

    async def _do(self, bulk: BulkAction, jobs: Sequence[tuple[str, int]]) -> None:
        found = await self._engine.jobs([job for job, _ in jobs])
        same = [job for job, rev in jobs if job in found and found[job].rev == rev]
        bulk.changed += len(jobs) - len(same)
        if bulk.action == "purge":
            purged = await self._engine.purge(same, bulk.tenant, bulk.actor)
            bulk.done += purged
            bulk.skipped += len(same) - purged
            return
        act = {
            "cancel": self._engine.cancel,
            "resume": self._engine.resume,
            "replay": self._engine.replay,
        }[bulk.action]
        for job in same:
            try:
                await act(job, bulk.tenant, f"bulk {bulk.id}")
                bulk.done += 1
            except (NotFound, WrongState):
                bulk.skipped += 1
            except FairlaneError:
                bulk.failed += 1
            if self._engine.clock.now() - bulk.written_at >= HEARTBEAT_MICROSECONDS:
                await self._save(bulk)

    async def _end(self, bulk: BulkAction, status: str) -> None:
        bulk.status = status
        counts = (bulk.done, bulk.changed, bulk.skipped, bulk.failed)
        await self._save(bulk, "{} done, {} changed, {} skipped, {} failed".format(*counts))

    async def _save(self, bulk: BulkAction, outcome: str | None = None) -> None:
        """Write a confirmed action, with an audit entry if there is an outcome."""
        await self._write(bulk, self._engine.clock.now() + RECORD_MICROSECONDS, outcome)

    async def _write(self, bulk: BulkAction, until: int, outcome: str | None = None) -> None:
        now, expected = self._engine.clock.now(), bulk.until
        audit = None
        if outcome is not None:
            verb = f"bulk {bulk.action} {VERBS[bulk.status]}"
            audit = BulkAudit(now, bulk.actor, verb, f"bulk {bulk.id}", bulk.filter, outcome)
        body = orjson.dumps(asdict(bulk)).decode()
        row = BulkRow(bulk.id, bulk.tenant, until, body, now, expected, audit)
        if not await self._engine.bulk_records.put(row):
            raise Replaced
        bulk.until = until


def _left_out(action: str, job: Job) -> str | None:
    """Why the action cannot change this job; None if it can."""
    if job.state not in ELIGIBLE[action]:
        return f"is {job.state}" if job.live else f"already {job.state}"
    if action == "resume" and (job.error is None or not job.error.resumable):
        return "cannot be resumed, only replayed"
    return None


def _handled(bulk: BulkAction) -> int:
    return bulk.done + bulk.changed + bulk.skipped + bulk.failed


def _text(wanted: Filter) -> str:
    given = {name: value for name, value in wanted._asdict().items() if value}
    return orjson.dumps(given).decode()
