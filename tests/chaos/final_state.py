"""Reads the final state of a run: jobs and events from the API, the rest from the tables of the
ledger, without the engine."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import httpx2

from tests.chaos.history import HistoryWriter, digest, now
from tests.chaos.slot_log import ledger_connection, logged_slots
from tests.small_disk import damage

PAGE = 200
MICROSECONDS = 1_000_000
AT_ONCE = 8
ATTEMPTS = """
SELECT a.job, a.fence, a.step, a.number, a.worker, a.started_at, a.ended_at, a.outcome, a.token,
    jobs.plan
FROM attempts a JOIN jobs ON jobs.id = a.job
UNION ALL
SELECT id, fence, step - 1, attempt, worker, started_at, finished_at, 'completed', ended_by, plan
FROM jobs WHERE ended_by IS NOT NULL
"""
SLOTS = """
SELECT pools.name, pools.size, count(slots.n) AS held FROM pools
LEFT JOIN slots ON slots.pool = pools.name WHERE pools.name LIKE 'svc:%' GROUP BY 1, 2
"""
LIVE = "SELECT count(*) FROM jobs WHERE state IN ('queued', 'running')"


class FinalState:
    def __init__(self, database: str, api: httpx2.AsyncClient, history: HistoryWriter) -> None:
        self._database, self._api, self._history = database, api, history

    async def live_jobs(self) -> int:
        async with ledger_connection(self._database) as connection:
            return int(await connection.fetchval(LIVE))

    async def note_slots(self, *, final: bool = False) -> int:
        """The taken slots of every service, in the ledger. Returns how many."""
        async with ledger_connection(self._database) as connection:
            rows = await connection.fetch(SLOTS)
        for row in rows:
            self._history.note(
                "slots", pool=row["name"], held=row["held"], limit=row["size"], final=final
            )
        return sum(row["held"] for row in rows)

    async def write(self) -> None:
        await self.note_slots(final=True)
        async with ledger_connection(self._database) as connection:
            await self._write_attempts(connection)
            await self._write_credits(connection)
            async for slot in logged_slots(connection):
                self._history.write("slot", **slot._asdict())
            rows = await connection.fetch("SELECT id, state, seq, parent, cells FROM jobs")
        detail = await damage(self._database)
        self._history.write("storage", store="postgres", ok=not detail, detail=detail)
        todo = list(rows)

        async def some() -> None:
            while todo:
                await self._write_job(todo.pop())

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
        self._history.write("end", at=now())

    async def _write_attempts(self, connection: asyncpg.Connection) -> None:
        for row in await connection.fetch(ATTEMPTS):
            self._history.write(
                "attempt",
                job=row["job"],
                fence=row["fence"],
                step=row["step"],
                number=row["number"],
                service=service_of(row["plan"], row["step"]),
                started_at=row["started_at"] / MICROSECONDS,
                ended_at=row["ended_at"] / MICROSECONDS,
                outcome=row["outcome"],
                worker=row["worker"],
                lease=digest(row["token"]),
            )

    async def _write_credits(self, connection: asyncpg.Connection) -> None:
        for row in await connection.fetch("SELECT operation, account, amount FROM entries"):
            self._history.write("entry", **row)
        for row in await connection.fetch("SELECT name, balance FROM accounts"):
            self._history.write("account", **row)

    async def _write_job(self, row: asyncpg.Record) -> None:
        job = await self._get(f"/api/v1/jobs/{row['id']}")
        for event in await self._get(f"/api/v1/jobs/{row['id']}/events"):
            self._history.write("event", job=row["id"], seq=event["seq"], type=event["type"])
        self._history.write(
            "job",
            id=row["id"],
            status=row["state"],
            operation=next(iter(job["tags"]), ""),
            api_status=job["status"],
            steps=0 if row["cells"] else job["total_steps"],
            parent=row["parent"] or "",
            events=row["seq"],
            outputs=outputs(job["context"] or {}),
        )

    async def _get(self, path: str) -> Any:
        answer = await self._api.get(path)
        answer.raise_for_status()
        return answer.json()


def service_of(plan: str, step: int) -> str:
    """The service of a step in a stored plan."""
    steps = json.loads(plan)
    found = steps[step] if isinstance(steps, list) else steps["steps"][step]
    return str(found["service"] if isinstance(found, dict) else found[0])


def outputs(context: dict[str, Any]) -> dict[str, str]:
    """The id of the call behind the stored output of each step."""
    found = {}
    for name, stored in context.items():
        if name.startswith("step_") and not name.endswith("__attempts"):
            data = stored.get("data") if isinstance(stored, dict) else None
            if isinstance(data, dict) and "call" in data:
                found[name.split("_")[1]] = data["call"]
    return found
