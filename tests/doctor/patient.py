"""A queue to examine: a real engine over real stores, a clock that the test moves, and a doctor."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import typer

from fairlane.cli import app
from fairlane.config.settings import ServerSettings, Settings
from fairlane.doctor import Doctor
from fairlane.doctor.checks import by_name
from fairlane.doctor.findings import Finding, FindingVerdict
from fairlane.ledger.postgres import PostgresLedger
from fairlane.model.catalog import Catalog, Limits
from fairlane.model.service import Fairness, Region, Service
from fairlane.model.tier import Tiers
from fairlane.model.worker import Worker
from fairlane.units import SECOND
from tests.core import core_of
from tests.world import TIERS, World

OTHER_PROGRAMS = ("psql ", "redis-cli ", "df ", "ss ", "timedatectl")
NOT_OK = frozenset({FindingVerdict.WARNING, FindingVerdict.WRONG, FindingVerdict.UNKNOWN})
SERVICES = frozenset({"work", "scarce", "spread", "full", "fragile"})
WORKER = Worker("w", SERVICES, region="EU", capacity=100)


WITH_TARGET = Tiers([replace(TIERS.all[0], target=5), *TIERS.all[1:]], TIERS.default)


class Patient:
    SETTINGS = Catalog(
        WITH_TARGET,
        [
            Service("work", fairness=Fairness.NONE),
            Service("scarce", limit=1, fairness=Fairness.NONE, timeout=3_600),
            Service("spread", regions={"EU": Region("EU", 1)}),
            Service("full", waiting=10),
            Service("fragile", max_attempts=1, fairness=Fairness.NONE),
        ],
        limits=Limits(waiting=100_000),
    )

    def __init__(self, world: World) -> None:
        self.world, self.engine, self.core = world, world.engine, core_of(world.engine)
        self.ahead = 0
        """How far the machine's clock is ahead of the queue's (µs)."""
        self.doctor = self.new_doctor()

    @property
    def clustered(self) -> bool:
        return isinstance(self.core.ledger, PostgresLedger)

    def new_doctor(self, server: ServerSettings | None = None, **more: Any) -> Doctor:
        settings = Settings(self.world.settings, server or ServerSettings())
        clock = self.world.clock
        return Doctor(self.engine, settings, wall_clock=lambda: clock.now() + self.ahead, **more)

    async def alive(self, *workers: Worker) -> None:
        """These workers send a heartbeat."""
        for each in workers or (WORKER,):
            await self.engine.register(each)

    async def found(self, check: str, doctor: Doctor | None = None) -> list[Finding]:
        """What the check finds that is not ok. Each finding is complete."""
        examination = await (doctor or self.doctor).examine({check})
        assert check in by_name()
        found = [each for each in examination.findings if each.verdict in NOT_OK]
        for each in found:
            demand_complete(each)
        return found

    async def one(self, check: str, verdict: str, doctor: Doctor | None = None) -> Finding:
        (finding,) = await self.found(check, doctor)
        assert finding.verdict == verdict, finding
        return finding

    async def sql(self, statement: str, *arguments: object) -> None:
        """Changes rows by hand, as no verb of the ledger does."""
        ledger = self.core.ledger
        if isinstance(ledger, PostgresLedger):
            async with ledger._pool.acquire() as connection:  # noqa: SLF001 - by hand
                numbered = re.sub(r"\?", _Numbers(), statement)
                await connection.execute(numbered, *arguments)
        else:
            writer = ledger._writer  # type: ignore[attr-defined]  # noqa: SLF001 - by hand

            def change(tx: Any, items: Sequence[None]) -> list[None]:
                tx.execute(statement, arguments)
                return [None] * len(items)

            await writer.write(change, [None])

    def pass_seconds(self, seconds: float) -> None:
        """Time passes, and no maintenance happens."""
        self.world.clock.advance(round(seconds * SECOND))


class _Numbers:
    def __init__(self) -> None:
        self._n = 0

    def __call__(self, _: object) -> str:
        self._n += 1
        return f"${self._n}"


def demand_complete(finding: Finding) -> None:
    """A finding that is not ok has a figure, a page, and a command that exists."""
    assert finding.page.startswith("/docs/checks#"), finding
    assert finding.verdict is FindingVerdict.UNKNOWN or finding.figure, finding
    demand_command(finding.command)


def demand_command(text: str) -> None:
    """The command line accepts it, or it is a well-known program's."""
    if text.startswith(OTHER_PROGRAMS):
        return
    name, *words = shlex.split(text)
    assert name == "fairlane", text
    command: Any = typer.main.get_command(app)
    while words and getattr(command, "commands", None):
        command = command.commands[words.pop(0)]
    with command.make_context("fairlane", list(words)):
        pass  # parsed without an error
