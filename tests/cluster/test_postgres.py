"""PostgreSQL as a server: how it is reached, what it must promise, what happens when it dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from fairlane.compose import shared
from fairlane.errors import LedgerTooNew, SetupError
from fairlane.ledger.postgres import PostgresLedger
from fairlane.ledger.shapes import Settled
from fairlane.model.job import NewJob
from fairlane.model.state import State
from fairlane.model.worker import Worker
from fairlane.servers import Databases, Postgres
from tests.proxy import Proxy
from tests.world import catalog


@pytest.fixture(scope="module")
def durable_server() -> Iterator[Postgres]:
    with Postgres(fsync=True) as server:
        yield server


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
async def test_urls_of_all_kinds_are_understood(postgres_server: Databases, scheme: str) -> None:
    url = await postgres_server.new_database()
    rest = url.partition("://")[2]
    ledger = await PostgresLedger.open(f"{scheme}://{rest}", unsafe=True)
    assert await ledger.load() == (0, 0)
    await ledger.close()


async def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot reach PostgreSQL"):
        await PostgresLedger.open("postgres://nobody@127.0.0.1:1/nothing")


async def test_a_server_that_may_forget_is_refused() -> None:
    """I2: unless the caller says that losing jobs is fine."""
    with Postgres(fsync=False) as server:
        with pytest.raises(SetupError, match="fsync = off"):
            await PostgresLedger.open(server.url)
        await (await PostgresLedger.open(server.url, unsafe=True)).close()


async def test_processes_that_start_at_once_migrate_once(postgres_server: Databases) -> None:
    url = await postgres_server.new_database()
    ledgers = await asyncio.gather(*(PostgresLedger.open(url, unsafe=True) for _ in range(6)))
    for ledger in ledgers:
        assert await ledger.turn() == (("", 0), (0, False))
        await ledger.close()


async def test_a_database_of_a_newer_version_is_left_alone(postgres_server: Databases) -> None:
    url = await postgres_server.new_database()
    await (await PostgresLedger.open(url, unsafe=True)).close()
    connection = await asyncpg.connect(url)
    await connection.execute("INSERT INTO fairlane.migrations VALUES (999)")
    await connection.close()
    with pytest.raises(LedgerTooNew, match="999"):
        await PostgresLedger.open(url, unsafe=True)


async def test_nobody_can_rewrite_the_audit_or_the_credits(postgres_server: Databases) -> None:
    url = await postgres_server.new_database()
    async with await shared(catalog(), url, sweeping=False, unsafe=True) as engine:
        await engine.set_tier("ada", "high")
        await engine.add_credits("ada", 5, "gift")
        connection = await asyncpg.connect(url)
        for statement in (
            "DELETE FROM fairlane.audit",
            "UPDATE fairlane.audit SET at = 0",
            "DELETE FROM fairlane.entries",
            "UPDATE fairlane.entries SET at = 0",
        ):
            with pytest.raises(asyncpg.RaiseError, match="append-only"):
                await connection.execute(statement)
        await connection.close()


async def test_a_commit_whose_answer_is_lost_happens_once(durable_server: Postgres) -> None:
    """I6: submit, claim and settle, each run again because nobody heard the server's answer."""
    url = await durable_server.new_database()
    async with (
        Proxy(url) as proxy,
        await shared(catalog(), proxy.url, sweeping=False) as engine,
    ):
        proxy.drop_replies(after=b"work")  # in what is sent, not in the statement
        submit = asyncio.create_task(engine.submit(NewJob("work")))
        await proxy.dropped()
        proxy.go_on()
        job = (await submit).job
        assert await engine.count(State.QUEUED) == 1

        proxy.drop_replies(after=job.encode())
        claim = asyncio.create_task(engine.claim(Worker("w"), 1))
        await proxy.dropped()
        proxy.go_on()
        (lease,) = await claim
        assert (lease.job, lease.attempt) == (job, 1)

        proxy.drop_replies(after=lease.token.encode())
        settle = asyncio.create_task(engine.complete(lease, "done"))
        await proxy.dropped()
        proxy.go_on()
        assert isinstance(await settle, Settled)
        assert len(await engine.attempts(job)) == 1
        assert not any(await engine.check())


async def test_what_was_accepted_survives_the_servers_death(durable_server: Postgres) -> None:
    """I1, I28: killed in the middle of submits; the engine goes on when it is back."""
    url = await durable_server.new_database()
    async with await shared(catalog(), url, sweeping=False) as engine:
        accepted: list[str] = []
        enough = asyncio.Event()

        async def submit() -> None:
            while True:
                accepted.append((await engine.submit(NewJob("work"))).job)
                if len(accepted) == 50:
                    enough.set()

        submits = [asyncio.create_task(submit()) for _ in range(8)]
        await enough.wait()
        durable_server.restart(mode="immediate")
        await asyncio.wait(submits, timeout=3)
        for each in submits:
            each.cancel()
        await asyncio.gather(*submits, return_exceptions=True)
        assert (await engine.submit(NewJob("work"))).job
        found = await engine.core.ledger.jobs(accepted)
        assert set(accepted) == set(found)
