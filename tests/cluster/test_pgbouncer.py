"""PgBouncer in transaction mode between Fairlane and PostgreSQL: without prepared statements (1.18)
and with them (1.24)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from fairlane.compose import cluster, shared
from fairlane.errors import LedgerInUse, SetupError, is_store_error
from fairlane.ledger.postgres.connect import CONNECT_QUERY, SETTINGS, connect
from fairlane.ledger.postgres.silent_connections import WatchedConnections
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.worker import Worker
from fairlane.servers import Postgres, RedisKeyspace
from tests.core import core_of
from tests.server_programs import NotAvailable, PgBouncer, debian_program
from tests.world import catalog

pytestmark = pytest.mark.timeout(300)  # the first run downloads the program


@pytest.fixture(params=["bookworm", "trixie"])
def program(request: pytest.FixtureRequest) -> list[str]:
    try:
        return debian_program(request.param, "pgbouncer", "usr/sbin/pgbouncer")
    except NotAvailable as error:
        pytest.skip(str(error))


@pytest.fixture
def pooler(program: list[str], durable_server: Postgres) -> Iterator[PgBouncer]:
    with PgBouncer(program, durable_server, connect_query=CONNECT_QUERY) as found:
        yield found


async def test_processes_share_a_queue_through_a_pooler(
    pooler: PgBouncer, durable_server: Postgres, redis_server: RedisKeyspace
) -> None:
    """I1, I3: all of them start at once, and the first one migrates. Each job runs once."""
    url = pooler.url(await durable_server.new_database())
    prefix = f"{{{pooler.port}}}:"
    queues = await asyncio.gather(
        *(cluster(catalog(), url, redis_server.url, prefix=prefix) for _ in range(3))
    )
    async with queues[0] as one, queues[1] as two, queues[2] as three:
        new = [NewJob("work", n) for n in range(200)]
        jobs = [each.job for each in await one.submit_many(new)]  # type: ignore[union-attr]
        done: list[Lease] = []
        async with asyncio.timeout(60):
            while len(done) < len(jobs):
                claims = (engine.claim(Worker("w"), 7, wait=1) for engine in (one, two, three))
                leases = [lease for found in await asyncio.gather(*claims) for lease in found]
                await asyncio.gather(*(two.complete(lease) for lease in leases))
                done += leases
        assert sorted(lease.job for lease in done) == sorted(jobs)
        last = await one.submit(NewJob("work"))
        pages = [page async for page in core_of(one).ledger.live(50)]
        assert [job.id for page in pages for job in page] == [last.job]
        assert not any(await one.check())


async def test_a_process_that_must_be_alone_is_alone_through_a_pooler(
    pooler: PgBouncer, durable_server: Postgres
) -> None:
    """I28: beside one that comes through the pooler, and beside one that does not."""
    database = await durable_server.new_database()
    async with await shared(catalog(), pooler.url(database), sweeping=False):
        for url in (pooler.url(database), database):
            with pytest.raises(LedgerInUse, match="alone"):
                await shared(catalog(), url)
    async with await shared(catalog(), database, sweeping=False):
        pass


async def test_a_pooler_that_ignores_our_settings_is_recognised(
    program: list[str], durable_server: Postgres
) -> None:
    with PgBouncer(
        program, durable_server, connect_query=CONNECT_QUERY, ignored=",".join(SETTINGS)
    ) as pooler:
        watched = WatchedConnections()
        url = pooler.url(await durable_server.new_database())
        await (await connect(url, most=2, watched=watched)).close()
        assert watched.pooled


async def test_a_restart_of_the_server_behind_a_pooler_loses_nothing(
    pooler: PgBouncer, durable_server: Postgres
) -> None:
    """I1, I28"""
    url = pooler.url(await durable_server.new_database())
    async with await shared(catalog(), url, sweeping=False) as engine:
        jobs = [(await engine.submit(NewJob("work"))).job]
        durable_server.restart(mode="immediate")
        async with asyncio.timeout(60):
            while len(jobs) < 2:
                try:
                    jobs.append((await engine.submit(NewJob("work"))).job)
                except Exception as error:
                    if not is_store_error(error):
                        raise
                    await asyncio.sleep(0)
        assert set(await core_of(engine).ledger.jobs(jobs)) == set(jobs)


async def test_a_pooler_without_the_settings_is_refused_with_the_line_to_add(
    program: list[str], durable_server: Postgres
) -> None:
    with PgBouncer(program, durable_server, connect_query="SELECT 1") as pooler:
        url = pooler.url(await durable_server.new_database())
        with pytest.raises(SetupError) as refused:
            await shared(catalog(), url)
        assert f"connect_query='{CONNECT_QUERY}'" in str(refused.value)
