"""What the hot statements read: rows found by an index, never a whole table.

The statements are those that the ledger sends while every hot verb is called; each is explained
with the settings of the ledger's own connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from fairlane.clock import ManualClock
from fairlane.compose import shared
from fairlane.engine import Engine
from fairlane.engine.settle import Done
from fairlane.engine.submit import Caller
from fairlane.errors import WrongState
from fairlane.ledger.messages import Filter, Owner
from fairlane.ledger.postgres import PostgresLedger, queries
from fairlane.ledger.postgres.connect import SETTINGS, plain
from fairlane.ledger.postgres.ledger import CONNECTIONS
from fairlane.model.attempt import Fault
from fairlane.model.catalog import Limits
from fairlane.model.job import NewJob
from fairlane.model.service import Service
from fairlane.model.state import State
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Worker
from fairlane.servers import Databases
from tests.core import core_of
from tests.world import catalog

LARGE = {
    *("jobs", "attempts", "events", "steps", "inputs", "slots", "idempotency"),
    *("entries", "key_users"),
}
"""Tables with rows for every job, every attempt, every place, every booking or every user."""

JOBS, ENDED = 20_000, 8_000


def settings() -> Any:
    tiers = Tiers([Tier("free"), Tier("counted", pending=50_000, per_hour=50_000)])
    services = (Service("work"), Service("few", limit=1000), Service("slow", max_wait=60))
    return catalog(*services, tiers=tiers)


Plan = dict[str, Any]


class Sent:
    """Every statement that a ledger's connections send, with arguments it was sent with."""

    def __init__(self) -> None:
        self.statements: dict[str, tuple[Any, ...]] = {}

    def note(self, record: asyncpg.connection.LoggedQuery) -> None:
        self.statements[record.query] = tuple(record.args)


@pytest.fixture(params=["fresh", "large"])
async def url(request: pytest.FixtureRequest, postgres_server: Databases) -> str:
    """A database nobody has ever analysed; or one with many jobs that was."""
    url = await postgres_server.new_database()
    if request.param == "large":
        async with await shared(settings(), url, sweeping=False, unsafe=True) as engine:
            await fill(engine)
        connection = await asyncpg.connect(plain(url))
        await connection.execute("ANALYZE")
        await connection.close()
    return url


async def fill(engine: Engine) -> None:
    users, ledger = [f"u{n}" for n in range(5000)], core_of(engine).ledger
    for key in ("many", "others"):
        await ledger.count_users("default", key, users, len(users), engine.clock.now())
    for start in range(0, JOBS, 2000):
        await engine.submit_many(
            [NewJob("work", i, user=f"u{i % 500}", tier="free") for i in range(start, start + 2000)]
        )
    for _ in range(0, ENDED, 1000):
        leases = await engine.claim(Worker("w"), 1000)
        await engine.settle([Done(lease) for lease in leases])
    await asyncio.gather(*(fail(engine) for _ in range(50)))


async def fail(engine: Engine) -> None:
    for lease in await engine.claim(Worker("w"), 2):
        await engine.fail(lease, Fault.INVALID_INPUT, "no")


async def use(engine: Engine, clock: ManualClock) -> None:
    """Every hot verb, in its quick way and in its long one, and the moves from outside."""
    ledger = core_of(engine).ledger
    many = [NewJob("work", i, user=f"u{i}", tier="free") for i in range(100)]
    await engine.submit_many(many)
    await engine.submit(NewJob("work", user="kay", tier="free", idempotency_key="k"))
    await engine.submit(NewJob("work", user="cora", tier="counted"))
    for key in ("many", "many", "few"):
        await ledger.count_users("default", key, [f"u{n}" for n in range(50)], 20, clock.now())
    await ledger.forget_key_users(clock.now())
    for owner in (Owner("default", "cora", "local"), Owner("default", None, "local")):
        await ledger.next_to_end(owner)
    await engine.submit_many([NewJob("few", i, tier="free") for i in range(50)])
    await engine.submit(NewJob("slow", tier="free"))
    worker = Worker("w")
    leases = await engine.claim(worker, 60)
    await engine.heartbeat(worker, leases)
    await engine.progress(leases[0], 0.5)
    await engine.fail(leases[0], Fault.TRANSIENT, "again")
    await engine.fail(leases[1], Fault.INVALID_INPUT, "no")
    await engine.settle([Done(lease) for lease in leases[2:40]])
    await engine.settle([Done(lease) for lease in leases[2:4]])
    await asyncio.gather(*(engine.heartbeat(worker, [lease]) for lease in leases[50:52]))
    await move(engine, leases[1].job)
    clock.advance(3_600_000_000)
    core_of(engine).reached_since = 0
    await engine.sweep()
    await ledger.outbox(100)
    await ledger.jobs([lease.job for lease in leases])
    await ledger.payload(leases[0].job)
    await ledger.attempts(leases[0].job)
    await ledger.events(leases[0].job, 0)
    await engine.list_jobs(Filter(), None, 50)
    await engine.list_jobs(Filter(user="u7", tenant="default"), None, 50)
    await engine.list_jobs(Filter(states=(State.FAILED, State.DEAD)), None, 50)
    live = (State.QUEUED, State.RUNNING)
    await engine.list_jobs(Filter(tenant="default", user="u7", states=live), None, 50)
    await engine.list_jobs(Filter(tenant="default", key="k", states=live), None, 50)
    await engine.list_jobs(Filter(tenant="default", states=live), None, 50)
    await ledger.running_jobs(Filter(tenant="default", user="u7"), "work", 50)
    await ledger.load()
    await ledger.finished_since(0)


async def move(engine: Engine, failed: str) -> None:
    """What is asked for from outside: of single jobs and of a fan-out."""
    await engine.add_credits("ada", 100, "gift")
    wanted = [NewJob("work", user="ada"), NewJob("work", matrix={"n": ("1", "2")})]
    job, fan_out = [each.job for each in await engine.submit_many(wanted)]  # type: ignore[union-attr]
    await engine.skip(job)
    await engine.cancel(job)
    await engine.statement("ada", since=1, limit=2)
    await engine.cancel(fan_out)
    with suppress(WrongState):  # it was refused for good; who asks is looked up all the same
        await engine.resume(failed)
    await engine.replay(failed)
    await engine.purge([failed], "default")


async def test_hot_statements_find_their_rows_by_an_index(url: str) -> None:
    sent, clock = Sent(), ManualClock()
    engine = await shared(settings(), url, clock=clock, sweeping=False, unsafe=True)
    async with engine:
        ledger = core_of(engine).ledger
        assert isinstance(ledger, PostgresLedger)
        await listen_to(ledger, sent)
        await use(engine, clock)
    connection = await asyncpg.connect(plain(url), server_settings=SETTINGS)
    try:
        hot = {query: args for query, args in sent.statements.items() if has_a_plan(query)}
        assert len(hot) > 25, "too few statements were seen"
        bad = [
            f"{scan} in {query}"
            for query, args in hot.items()
            for plan in (plan_for_these, plan_for_any)
            for scan in whole_tables(await plan(connection, query, args), limited=False)
        ]
        assert not bad, "\n".join(bad)
    finally:
        await connection.close()


async def test_a_rebuild_looks_every_job_up_by_its_id(url: str) -> None:
    """The plan is made when a process starts, perhaps on empty tables, and kept."""
    async with await shared(settings(), url, sweeping=False, unsafe=True):
        pass
    connection = await asyncpg.connect(plain(url), server_settings=SETTINGS)
    try:
        async with connection.transaction():
            query = f"EXPLAIN (FORMAT JSON) DECLARE one CURSOR FOR {queries.LIVE}"
            plan = plan_in(await connection.fetchval(query))
        assert not list(whole_tables(plan, limited=False))
    finally:
        await connection.close()


async def test_a_job_that_is_refused_already_is_not_counted(postgres_server: Databases) -> None:
    """S8: a refused user costs less than an accepted job."""
    url = await postgres_server.new_database()
    tiers, limits = Tiers([Tier("only", pending=5, per_hour=5)]), Limits(users_per_key=1)
    settings = catalog(tiers=tiers, limits=limits)
    async with await shared(settings, url, sweeping=False, unsafe=True) as engine:
        ledger = core_of(engine).ledger
        assert isinstance(ledger, PostgresLedger)
        for user, counts in (("ada", True), ("bob", False)):
            sent = Sent()
            await listen_to(ledger, sent)
            await engine.submit_many([NewJob("work", user=user)], Caller("acme", "key"))
            assert any("count(*)" in query for query in sent.statements) == counts


async def listen_to(ledger: PostgresLedger, sent: Sent) -> None:
    """To all connections it will ever have."""
    pool = ledger._pool  # noqa: SLF001 - nobody else knows its connections
    connections = [await pool.acquire() for _ in range(CONNECTIONS)]
    for connection in connections:
        connection.add_query_logger(sent.note)
    for connection in connections:
        await pool.release(connection)


async def plan_for_these(connection: asyncpg.Connection, query: str, args: Sequence[Any]) -> Plan:
    return plan_in(await connection.fetchval(f"EXPLAIN (FORMAT JSON) {query}", *args))


async def plan_for_any(connection: asyncpg.Connection, query: str, args: Sequence[Any]) -> Plan:
    """The one plan that is made without a look at the arguments, and kept."""
    await connection.execute(f"PREPARE one AS {query}")
    nothing = f"({', '.join(['NULL'] * len(args))})" if args else ""
    text = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE one {nothing}")
    await connection.execute("DEALLOCATE one")
    return plan_in(text)


def plan_in(text: str) -> Plan:
    (found,) = json.loads(text)
    plan: Plan = found["Plan"]
    return plan


def has_a_plan(query: str) -> bool:
    return query.split(None, 1)[0] in ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")


def whole_tables(node: Plan, *, limited: bool) -> Iterator[str]:
    """Scans of large tables that no condition narrows, unless somebody stops reading them."""
    limited = limited or node["Node Type"] == "Limit"
    narrowed = "Index Cond" in node or "Recheck Cond" in node or "TID Cond" in node
    kind, table = node["Node Type"], node.get("Relation Name")
    if table in LARGE and "Scan" in kind and (kind == "Seq Scan" or not (narrowed or limited)):
        yield f"{kind} of {table}"
    for child in node.get("Plans", ()):
        yield from whole_tables(child, limited=limited)
