"""The servers that tests run on start, die and come back as the tests need them to."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fairlane.servers import Databases, Postgres, Redis, RedisKeyspace, Sentinel
from fairlane.servers.process import ServerFailed, temporary_folder
from tests.proxy import Proxy
from tests.repo.checkout import ROOT


@pytest.fixture(scope="module")
def durable() -> Iterator[Postgres]:
    """A PostgreSQL to be killed. A test leaves it up."""
    with Postgres(fsync=True) as server:
        yield server


def test_folders_that_a_dead_process_has_left_are_removed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    (tmp_path / f"fairlane-server-{ended.pid}-left" / "inside").mkdir(parents=True)
    kept = {f"fairlane-server-{os.getpid()}-own", "fairlane-server-12345678", "fairlane-other-1-x"}
    for name in kept:
        (tmp_path / name).mkdir()
    made = temporary_folder("server", tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {*kept, made.name}


# ── PostgreSQL ───────────────────────────────────────────────────────────────────────────────


async def test_a_new_database_is_empty_and_nobody_elses(postgres_server: Databases) -> None:
    first, second = [await postgres_server.new_database() for _ in range(2)]
    await run(first, "CREATE TABLE t ()")
    await run(second, "CREATE TABLE t ()")


async def test_databases_of_a_given_server_go_when_the_tests_are_done(
    postgres_server: Databases,
) -> None:
    given = Databases(postgres_server.url)
    url = await given.new_database()
    await given.drop_databases()
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(url)


async def test_postgres_listens_on_a_socket_in_its_folder_too(durable: Postgres) -> None:
    folder = str(durable.folder)
    connection = await asyncpg.connect(
        host=folder, port=durable.port, user="postgres", database="postgres"
    )
    await connection.close()


async def test_a_durable_postgres_says_so(durable: Postgres) -> None:
    assert await value(durable.url, "SHOW fsync") == "on"
    assert await value(durable.url, "SHOW synchronous_commit") == "on"


async def test_what_was_committed_is_there_after_kill_and_restart(durable: Postgres) -> None:
    url = await durable.new_database()
    await run(url, "CREATE TABLE t (n int)")
    session = await asyncpg.connect(url)
    await session.execute("INSERT INTO t VALUES (1)")
    before = durable.pids
    durable.kill()
    assert gone(before)
    with pytest.raises((asyncpg.PostgresConnectionError, OSError)):
        await session.execute("INSERT INTO t VALUES (2)")
    durable.start()
    assert await value(url, "SELECT sum(n) FROM t") == 1


async def test_a_fast_restart_goes_on_after_an_immediate_one(durable: Postgres) -> None:
    url = await durable.new_database()
    await run(url, "CREATE TABLE t ()")
    for mode in ("immediate", "fast"):
        durable.restart(mode)
        assert await value(url, "SELECT count(*) FROM t") == 0


# ── Redis ────────────────────────────────────────────────────────────────────────────────────


def test_redis_evicts_nothing(redis_server: RedisKeyspace) -> None:
    with client(redis_server.url) as keys:
        assert keys.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


@pytest.mark.parametrize("appendonly", [False, True])
def test_a_killed_redis_knows_its_keys_only_when_it_wrote_them_down(*, appendonly: bool) -> None:
    with Redis(appendonly=appendonly) as server, client(server.url) as keys:
        keys.set("k", "v")
        server.kill()
        with pytest.raises(redis.ConnectionError):
            keys.get("k")
        server.restart()
        assert keys.get("k") == (b"v" if appendonly else None)


def test_a_paused_redis_answers_when_it_is_resumed() -> None:
    with Redis() as server, client(server.url) as keys:
        keys.ping()
        server.pause()
        with client(server.url, timeout=0.1) as hasty, pytest.raises(redis.TimeoutError):
            hasty.ping()
        server.resume()
        assert keys.ping()


def test_a_sentinel_puts_the_replica_in_the_place_of_a_dead_primary() -> None:
    with (
        Redis() as primary,
        client(primary.url) as keys,
        Redis(replica_of=primary) as replica,
        Sentinel(primary, after=200) as sentinel,
        client(f"redis://127.0.0.1:{sentinel.port}") as watcher,
        watcher.pubsub(ignore_subscribe_messages=True) as news,  # type: ignore[no-untyped-call]
        client(replica.url) as copy,
    ):
        keys.set("k", "v")
        assert keys.wait(1, 5000) == 1
        news.subscribe("+switch-master")
        primary.kill()
        while (switched := news.get_message(timeout=10)) is None:
            pass
        assert switched["data"].split()[-1] == b"%d" % replica.port
        assert copy.incr("n") == 1
        assert copy.get("k") == b"v"


# ── the proxy ────────────────────────────────────────────────────────────────────────────────


async def test_a_commit_whose_reply_is_lost_is_still_a_commit(postgres_server: Databases) -> None:
    url = await postgres_server.new_database()
    await run(url, "CREATE TABLE t (n int)")
    async with Proxy(url) as proxy:
        session = await asyncpg.connect(proxy.url)
        proxy.drop_replies(after=b"COMMIT")
        waiting = asyncio.ensure_future(insert_in_transaction(session))
        await proxy.dropped()
        assert await value(url, "SELECT count(*) FROM t") == 1
        assert not waiting.done()
        proxy.go_on()
        with pytest.raises((asyncpg.PostgresConnectionError, OSError)):
            await waiting
        assert await value(proxy.url, "SELECT count(*) FROM t") == 1


async def test_every_reply_is_lost_until_the_proxy_goes_on(redis_server: RedisKeyspace) -> None:
    async with Proxy(redis_server.url) as proxy, session(proxy) as old:
        assert await old.answers()
        proxy.drop_replies()
        waiting = asyncio.ensure_future(old.answers())
        await proxy.dropped()
        assert not waiting.done()
        proxy.go_on()
        assert not await waiting
        async with session(proxy) as new:
            assert await new.answers()


async def test_a_cut_connection_breaks_and_the_next_one_works(redis_server: RedisKeyspace) -> None:
    async with Proxy(redis_server.url) as proxy, session(proxy) as old:
        assert await old.answers()
        proxy.cut()
        assert not await old.answers()
        async with session(proxy) as new:
            assert await new.answers()


async def test_a_silent_proxy_swallows_both_ways_and_breaks_nothing(
    redis_server: RedisKeyspace,
) -> None:
    async with Proxy(redis_server.url) as proxy, session(proxy) as old:
        assert await old.answers()
        proxy.silence()
        waiting = asyncio.ensure_future(old.answers())
        async with session(proxy) as new:
            also_waiting = asyncio.ensure_future(new.answers())
            proxy.end_silence()
            async with session(proxy) as later:
                assert await later.answers()
            assert not waiting.done()
            assert not also_waiting.done()
            proxy.cut()
            assert not await waiting
            assert not await also_waiting


async def test_a_proxy_that_refuses_breaks_new_connections_too(redis_server: RedisKeyspace) -> None:
    async with Proxy(redis_server.url) as proxy:
        proxy.refuse()
        async with session(proxy) as refused:
            assert not await refused.answers()
        proxy.go_on()
        async with session(proxy) as new:
            assert await new.answers()


async def test_a_client_of_the_proxy_sees_that_the_server_is_down() -> None:
    with Redis() as server:
        url = server.url
    async with Proxy(url) as proxy, session(proxy) as broken:
        assert not await broken.answers()


# ── nothing stays ────────────────────────────────────────────────────────────────────────────


def test_a_stopped_server_leaves_no_process_and_no_file() -> None:
    with Redis() as server:
        pids = server.pids
        assert pids
        assert server.folder.exists()
    assert gone(pids)
    assert not server.folder.exists()


def test_servers_die_with_the_test_run_that_started_them() -> None:
    run_and_wait = (
        "import signal; from fairlane.servers import Postgres, Redis\n"
        "with Postgres(fsync=False) as a, Redis() as b:\n"
        "    b.pause()\n"
        "    print(*a.pids, *b.pids, flush=True); print(a.folder, b.folder, flush=True)\n"
        "    signal.pause()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", run_and_wait], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as tests:
        assert tests.stdout
        pids = [int(pid) for pid in tests.stdout.readline().split()]
        folders = tests.stdout.readline().split()
        handles = [os.pidfd_open(pid) for pid in pids]
        assert len(handles) > 3
        tests.send_signal(signal.SIGKILL)
    for handle in handles:
        assert select.select([handle], [], [], 10)[0]
        os.close(handle)
    for folder in folders:
        assert folder.rpartition("/")[2].startswith("fairlane-server-")
        shutil.rmtree(folder)


def test_a_server_that_does_not_start_shows_its_log() -> None:
    with Redis() as first:
        second = Redis()
        second.port = first.port
        first.pause()  # it would answer in the other's name
        with pytest.raises(ServerFailed, match="Address already in use"), second:
            pass
        assert not second.folder.exists()


# ── steps ────────────────────────────────────────────────────────────────────────────────────


def gone(pids: list[int]) -> bool:
    """Whether none of them runs; what nobody has buried yet does not run."""
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        dead = select.select([handle], [], [], 0)[0]
        os.close(handle)
        if not dead:
            return False
    return True


def client(url: str, timeout: float = 5) -> closing[redis.Redis]:
    return closing(
        redis.Redis.from_url(url, socket_timeout=timeout, retry=Retry(NoBackoff(), 0), protocol=2)
    )


async def run(url: str, statement: str) -> None:
    await value(url, statement)


async def value(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def insert_in_transaction(session: asyncpg.Connection) -> None:
    async with session.transaction():
        await session.execute("INSERT INTO t VALUES (1)")


class Session:
    """A connection to a Redis, bare."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answers(self) -> bool:
        """Whether a ping is answered, or the connection breaks."""
        try:
            self.writer.write(b"PING\r\n")
            return await self.reader.readline() == b"+PONG\r\n"
        except OSError:
            return False


@asynccontextmanager
async def session(proxy: Proxy) -> AsyncIterator[Session]:
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(proxy.url).port)
    try:
        yield Session(reader, writer)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
