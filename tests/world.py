"""A queue to test with: a real engine over real stores, and a clock that the test moves."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from fairlane.clock import ManualClock, seconds
from fairlane.engine import Engine
from fairlane.engine.submit import Caller
from fairlane.ledger.messages import SubmissionAccepted
from fairlane.model.catalog import Catalog
from fairlane.model.job import Job, NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Fairness, Service
from fairlane.model.state import State
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Worker
from tests import stores

TIERS = Tiers(
    [
        Tier("high", max_retries=5, timeout=300),
        Tier("medium", {"high": 1200}, max_retries=3, timeout=600),
        Tier("low", {"medium": 600, "high": 1800}, max_retries=2, timeout=900),
    ],
    default="medium",
)


def catalog(*services: Service, tiers: Tiers = TIERS, **others: object) -> Catalog:
    """Settings with these services; one unlimited, unfair service "work" if none is named."""
    chosen = services or (Service("work", fairness=Fairness.NONE),)
    return Catalog(tiers, chosen, **others)  # type: ignore[arg-type]


class World:
    """One embedded queue. Sweeps happen when the test says so."""

    def __init__(
        self,
        settings: Catalog,
        path: Path,
        connection: type[sqlite3.Connection] = sqlite3.Connection,
        where: stores.Stores | None = None,
    ) -> None:
        self.settings, self.path, self.connection, self._where = settings, path, connection, where
        self.clock = ManualClock()
        self.starts = 0
        self.engine: Engine

    async def __aenter__(self) -> World:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.engine.stop()

    async def start(self) -> None:
        self.starts += 1  # each life makes ids of its own, also without time in between
        where = self._where or stores.present
        engine = await where.open(
            self.settings, self.path, self.clock, self.starts, self.connection
        )
        self.engine = await engine.__aenter__()

    async def restart(self) -> None:
        """Stop, forget everything that is only in memory, start from the file."""
        await self.engine.stop()
        await self.start()

    async def submit(self, name: str = "work", caller: Caller | None = None, **more: object) -> str:
        """Submit one job; its id."""
        job = NewJob(name, **more)  # type: ignore[arg-type]
        return (await self.engine.submit(job, caller or Caller())).job

    async def submit_all(self, jobs: Sequence[NewJob]) -> list[str]:
        outcomes = await self.engine.submit_many(jobs)
        assert all(isinstance(outcome, SubmissionAccepted) for outcome in outcomes), outcomes
        return [outcome.job for outcome in outcomes if isinstance(outcome, SubmissionAccepted)]

    async def claim(self, n: int = 1, worker: Worker | None = None) -> list[Lease]:
        return await self.engine.claim(worker or Worker("w"), n)

    async def claim_one(self, worker: Worker | None = None) -> Lease:
        (lease,) = await self.claim(1, worker)
        return lease

    async def job(self, job: str) -> Job:
        return await self.engine.get(job)

    async def pass_time(self, duration: float, *, sweeps: int = 1) -> None:
        """Let seconds go by, then sweep."""
        self.clock.advance(seconds(duration))
        for _ in range(sweeps):
            await self.engine.sweep()

    async def drain(self, *workers: Worker) -> int:
        """Run everything to its end, letting time pass where needed; how many attempts it took."""
        attempts = 0
        for _ in range(200):
            leases = [
                lease
                for worker in workers or (Worker("w"),)
                for lease in await self.claim(100, worker)
            ]
            attempts += len(leases)
            for lease in leases:
                await self.engine.complete(lease)
            if not leases:
                if not await self.live():
                    return attempts
                await self.pass_time(20)
        raise AssertionError(f"after 200 rounds {await self.live()} jobs still live")

    async def live(self) -> int:
        """How many jobs are queued or running."""
        return await self.engine.count(State.QUEUED) + await self.engine.count(State.RUNNING)

    async def healthy(self) -> None:
        """The ledger's own promises hold."""
        counts = await self.engine.check()
        assert not any(counts), counts
