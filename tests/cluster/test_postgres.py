"""PostgreSQL as a server: how it is reached, what it must promise, what happens when it dies."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from fairlane.clock import ManualClock
from fairlane.compose import shared
from fairlane.engine import Engine
from fairlane.errors import LedgerInUse, LedgerTooNew, LedgerUnusable, SetupError
from fairlane.ledger.postgres import PostgresLedger
from fairlane.ledger.postgres.connect import SLOWEST_STATEMENT, connect
from fairlane.ledger.postgres.fast_path import SETTLE
from fairlane.ledger.postgres.key_users import count_users
from fairlane.ledger.postgres.migrate import MIGRATION_TIMEOUT_SECONDS, SCHEMA, migrate
from fairlane.ledger.postgres.process_lock import PROCESS_LOCK
from fairlane.ledger.postgres.settle import settle
from fairlane.ledger.postgres.silent_connections import WatchedConnection, WatchedConnections
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.ledger.postgres.writer import PostgresWriter
from fairlane.ledger.requests import KeyUsers
from fairlane.ledger.statement import MAX_TIME
from fairlane.model.catalog import Catalog
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Service
from fairlane.model.worker import Worker
from fairlane.policy.quotas import HOUR_MICROSECONDS
from fairlane.servers import Databases, Postgres
from tests.cluster.fleet import LONG_ENOUGH
from tests.core import core_of
from tests.ledger_items import AFTERWARDS, OLD_ACCOUNTS, OLD_ENTRIES, completion
from tests.proxy import Proxy
from tests.world import catalog


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


@pytest.mark.parametrize(
    ("setting", "switched_off"),
    [
        ("fsync", ""),
        ("full_page_writes", "ALTER SYSTEM SET full_page_writes = off"),
        ("synchronous_commit", "ALTER ROLE postgres SET synchronous_commit = off"),
        ("synchronous_commit", "ALTER DATABASE postgres SET synchronous_commit = off"),
    ],
)
async def test_a_server_that_may_forget_is_refused(setting: str, switched_off: str) -> None:
    """I2: unless the caller says that losing jobs is fine."""
    with Postgres(fsync=bool(switched_off), in_memory=True) as server:
        if switched_off:
            await (await PostgresLedger.open(server.url)).close()
            connection = await asyncpg.connect(server.url)
            await connection.execute(switched_off)
            await connection.close()
            server.restart()
        with pytest.raises(SetupError, match=f"{setting} = off"):
            await PostgresLedger.open(server.url)
        await (await PostgresLedger.open(server.url, unsafe=True)).close()


async def test_processes_that_start_at_once_migrate_once(postgres_server: Databases) -> None:
    url = await postgres_server.new_database()
    ledgers = await asyncio.gather(*(PostgresLedger.open(url, unsafe=True) for _ in range(6)))
    for ledger in ledgers:
        assert await ledger.turn() == (("", 0), (0, False))
        await ledger.close()


async def test_a_migration_may_take_longer_than_a_statement(postgres_server: Databases) -> None:
    """So may the wait for another process that migrates."""
    pool = await connect(await postgres_server.new_database(), most=1)
    timeouts: dict[str, float] = {}
    async with pool.acquire() as connection:
        connection.add_query_logger(lambda sent: timeouts.update({sent.query: sent.timeout}))
    await migrate(pool)
    await pool.close()
    steps = [step.read_text() for step in SCHEMA.iterdir() if step.name.endswith(".sql")]
    for statement in ("SELECT pg_advisory_xact_lock($1)", *steps):
        assert timeouts[statement] == MIGRATION_TIMEOUT_SECONDS > 60 * SLOWEST_STATEMENT


async def test_entries_of_one_instant_get_an_order_when_a_ledger_is_migrated(
    postgres_server: Databases,
) -> None:
    """I14: amounts and balances stay; entries are append-only again."""
    url = await postgres_server.new_database()
    old = await asyncpg.connect(url, server_settings={"search_path": "fairlane"})
    await old.execute("CREATE SCHEMA fairlane; CREATE TABLE migrations (number bigint PRIMARY KEY)")
    for number, step in enumerate(("0001_first", "0002_keys", "0003_gateway"), start=1):
        await old.execute((SCHEMA / f"{step}.sql").read_text())
        await old.execute("INSERT INTO migrations VALUES ($1)", number)
    await old.executemany("INSERT INTO accounts VALUES ($1, $2)", OLD_ACCOUNTS)
    await old.executemany("INSERT INTO entries VALUES ($1, $2, $3, $4)", OLD_ENTRIES)
    ledger = await PostgresLedger.open(url, unsafe=True)
    found = await ledger.statement("default", "ada", 0, MAX_TIME, 50)
    counts = await ledger.check()
    await ledger.close()
    assert [(each.operation_key, each.at, each.balance) for each in found.entries] == AFTERWARDS
    assert not any(counts)
    for wish in ("UPDATE entries SET at = 1", "DELETE FROM entries"):
        with pytest.raises(asyncpg.RaiseError, match="append-only"):
            await old.execute(wish)
    await old.close()


async def test_no_index_depends_on_the_language_of_the_database(postgres_server: Databases) -> None:
    url = await postgres_server.new_database()
    await (await PostgresLedger.open(url, unsafe=True)).close()
    connection = await asyncpg.connect(url)
    found = await connection.fetch(INDEXED_TEXTS)
    await connection.close()
    assert found
    assert {(table, column) for table, column, how in found if how != "C"} == set()


INDEXED_TEXTS = """
SELECT indrelid::regclass::text, attname, collname FROM pg_index
JOIN pg_attribute ON attrelid = indexrelid JOIN pg_collation ON pg_collation.oid = attcollation
WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'fairlane'::regnamespace)
"""


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


async def still(settings: Catalog, url: str) -> Engine:
    """One of several engines that do nothing by themselves."""
    clock = ManualClock()
    return await shared(settings, url, clock=clock, sweeping=False, unsafe=True, alone=False)


@pytest.mark.parametrize("setting", ["rate", "limit"])
async def test_a_change_whose_answer_is_lost_leaves_later_ones_as_they_are(
    postgres_server: Databases, setting: str
) -> None:
    """I11: whoever runs a change again follows what others have changed since, also the same."""
    url = await postgres_server.new_database()
    settings = catalog(Service("work", limit=5, rate=50))
    async with (
        Proxy(url) as proxy,
        await still(settings, proxy.url) as one,
        await still(settings, url) as two,
    ):
        proxy.drop_replies(after=b"COMMIT")
        change = asyncio.create_task(one.change("services", "work", "limit", 3))
        await proxy.dropped()
        await two.change("services", "work", setting, 7)
        proxy.go_on()
        await change
        there, here = (core_of(engine).catalog.service("work") for engine in (two, one))
        assert getattr(there, setting) == 7
        assert here == there
        assert core_of(one).settings == core_of(two).settings
        assert len(await one.audit()) == 2


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
        found = await core_of(engine).ledger.jobs(accepted)
        assert set(accepted) == set(found)


async def test_a_connection_whose_caller_is_gone_when_it_is_made_is_closed(
    postgres_server: Databases,
) -> None:
    url, watched = await postgres_server.new_database(), WatchedConnections()
    before = asyncio.all_tasks()
    calling = asyncio.create_task(watched.connect(url, connection_class=WatchedConnection))
    await asyncio.sleep(0)
    (connecting,) = [
        each
        for each in asyncio.all_tasks() - before - {calling}
        if getattr(each.get_coro(), "__name__", "") == "connect"
    ]
    connecting.add_done_callback(lambda _: calling.cancel())
    with pytest.raises(asyncio.CancelledError):
        await calling
    made = await connecting
    assert made.is_closed()


HOLDERS = """
SELECT pid FROM pg_locks JOIN pg_database ON pg_database.oid = database
WHERE locktype = 'advisory' AND objid = $1 AND granted AND datname = current_database()
"""


WAITERS = HOLDERS.replace("granted", "NOT granted")


async def test_a_process_that_must_be_alone_still_is_when_its_server_was_restarted(
    durable_server: Postgres,
) -> None:
    """I28: the lock that says so is gone with the server, and taken again."""
    url = await durable_server.new_database()
    async with await shared(catalog(), url, sweeping=False):
        durable_server.restart(mode="immediate")
        connection = await asyncpg.connect(url)
        async with asyncio.timeout(LONG_ENOUGH):
            while not await connection.fetch(HOLDERS, PROCESS_LOCK):
                pass
        await connection.close()
        with pytest.raises(LedgerInUse, match="alone"):
            await shared(catalog(), url)


async def accepted(engine: Engine) -> bool:
    try:
        await engine.submit(NewJob("work"))
    except LedgerInUse:
        await asyncio.sleep(0)
        return False
    return True


async def test_whoever_finds_another_in_its_place_does_nothing_until_it_has_gone(
    postgres_server: Databases,
) -> None:
    """I28: one that came while the connection was lost. Two indexes undo each other's work."""
    url = await postgres_server.new_database()
    async with await shared(catalog(), url, sweeping=False, unsafe=True) as engine:
        killer, other = await asyncpg.connect(url), await asyncpg.connect(url)
        (holder,) = await killer.fetch(HOLDERS, PROCESS_LOCK)
        coming = asyncio.create_task(other.execute("SELECT pg_advisory_lock($1)", PROCESS_LOCK))
        async with asyncio.timeout(LONG_ENOUGH):
            while not await killer.fetch(WAITERS, PROCESS_LOCK):
                pass
        await killer.execute("SELECT pg_terminate_backend($1)", holder["pid"])
        await coming
        async with asyncio.timeout(LONG_ENOUGH):
            while await accepted(engine):
                pass
            with pytest.raises(LedgerInUse):
                await engine.overview()
            await other.close()
            while not await accepted(engine):
                pass
        await killer.close()


async def test_a_write_that_takes_too_long_is_not_tried_again(postgres_server: Databases) -> None:
    """Whoever calls hears after one timeout, not after several."""
    url = await postgres_server.new_database()
    async with await shared(catalog(), url, sweeping=False, unsafe=True) as engine:
        await engine.submit(NewJob("work"))
        (lease,) = await engine.claim(Worker("w"), 1)
        assert await tries_of_a_settle_without_an_answer(url, lease) <= 1
        await engine.complete(lease)


async def tries_of_a_settle_without_an_answer(url: str, lease: Lease) -> int:
    """How often it is sent while somebody else holds the job's row."""
    pool, holder = await connect(url, most=1), await asyncpg.connect(url)
    sent: list[str] = []
    async with pool.acquire() as connection:
        connection.add_query_logger(lambda record: sent.append(record.query))
    try:
        async with holder.transaction():
            await holder.execute("SELECT 1 FROM fairlane.jobs FOR UPDATE")
            with pytest.raises(TimeoutError):
                await PostgresWriter(pool, longest=0.3).write(
                    settle, [completion(lease, lease.started_at)]
                )
    finally:
        await holder.close()
        await pool.close()
    return sent.count(SETTLE.sql)


async def test_calls_that_count_users_of_one_key_share_their_statements(
    postgres_server: Databases,
) -> None:
    """S8: every other call that counts users of this key waits for them."""
    url = await postgres_server.new_database()
    await (await PostgresLedger.open(url, unsafe=True)).close()
    pool = await connect(url, most=1)
    sent: list[str] = []
    calls = [KeyUsers("acme", "key", [f"u{n}"], 20, 0) for n in range(100)]
    async with pool.acquire() as connection, connection.transaction():
        connection.add_query_logger(lambda record: sent.append(record.query))
        counted = await count_users(PostgresTransaction(connection), calls)
    await pool.close()
    accepted = [({f"u{n}": HOUR_MICROSECONDS}, 0) for n in range(20)]
    assert counted == accepted + [({}, HOUR_MICROSECONDS)] * 80
    assert len(sent) == len(set(sent))


async def test_the_only_process_on_a_database_takes_the_calls_of_its_last_life_back(
    postgres_server: Databases,
) -> None:
    """I4: and leaves what runs elsewhere its full time. With others beside it, it takes nothing."""
    url, clock = await postgres_server.new_database(), ManualClock()
    inside, outside = Worker("inside", in_process=True), Worker("outside")

    async def opened(*, alone: bool) -> Engine:
        return await shared(catalog(), url, clock=clock, sweeping=False, unsafe=True, alone=alone)

    async with await opened(alone=True) as engine:
        leases = []
        for worker in (inside, outside):
            await engine.register(worker)
            await engine.submit(NewJob("work"))
            leases += await engine.claim(worker)
    ours, theirs = leases
    clock.advance(16_000_000)
    async with await opened(alone=False) as engine:
        assert (await engine.get(ours.job)).token == ours.token
    async with await opened(alone=True) as engine:
        assert (await engine.get(ours.job)).token is None
        await engine.sweep()
        clock.advance(14_000_000)
        assert not any(await engine.heartbeat(outside, [theirs]))
        await engine.complete(theirs)
        assert not any(await engine.check())


FULL = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION full_disk()
"""


async def test_a_server_whose_disk_is_full_is_known_to_be(postgres_server: Databases) -> None:
    """I32: also when a change that needs no room would work."""
    url = await postgres_server.new_database()
    async with await shared(catalog(), url, sweeping=False, unsafe=True) as engine:
        connection = await asyncpg.connect(url, server_settings={"search_path": "fairlane"})
        await connection.execute(FULL.format("jobs"))
        with pytest.raises(asyncpg.DiskFullError):
            await engine.submit(NewJob("work"))
        with pytest.raises(asyncpg.DiskFullError):
            await core_of(engine).ledger.vitals.demand_writable()
        await connection.close()


async def test_a_full_disk_is_named_at_the_start(postgres_server: Databases) -> None:
    url = await postgres_server.new_database()
    await (await PostgresLedger.open(url, unsafe=True)).close()
    connection = await asyncpg.connect(url, server_settings={"search_path": "fairlane"})
    await connection.execute(FULL.format("pools"))
    settings = catalog(Service("work", limit=1))
    with pytest.raises(LedgerUnusable, match="PostgreSQL is full; make room"):
        await (await shared(settings, url, sweeping=False, unsafe=True)).start()
    await connection.close()
