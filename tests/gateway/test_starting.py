"""Processes that start before their stores do, or before the first `serve`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from fairlane.servers import Databases, RedisKeyspace
from tests.gateway.site import FOREIGN, LONG_ENOUGH
from tests.proxy import Proxy

WORKER = """
from fairlane import Worker
worker = Worker()

@worker.task("hello")
def hello(payload):
    return "hello"
"""

COMMANDS = {
    "serve": ("serve", "--port", "0"),
    "dispatch": ("dispatch",),
    "worker": ("worker", "app:worker", "--cluster"),
}


@asynccontextmanager
async def running(
    folder: Path, variables: Mapping[str, str], *arguments: str
) -> AsyncIterator[Process]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    command = (sys.executable, "-m", "fairlane", *arguments)
    env = {**kept, "FAIRLANE_SERVER__UNSAFE": "true", **variables}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=env, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def said(stream: asyncio.StreamReader | None, what: str) -> str:
    """The line in which it says so."""
    assert stream is not None
    async with asyncio.timeout(LONG_ENOUGH):
        while line := (await stream.readline()).decode():
            if what in line:
                return line
    raise AssertionError(f"ended without saying {what}")


async def migrated(folder: Path, variables: Mapping[str, str]) -> None:
    async with running(folder, variables, "migrate") as process:
        assert await asyncio.wait_for(process.wait(), LONG_ENOUGH) == 0


@pytest.mark.parametrize(
    ("command", "store"),
    [
        ("serve", "DATABASE_URL"),
        ("serve", "REDIS_URL"),
        ("dispatch", "DATABASE_URL"),
        ("dispatch", "REDIS_URL"),
        ("migrate", "DATABASE_URL"),
    ],
)
async def test_a_process_waits_for_a_store_that_is_away_and_says_so(
    tmp_path: Path,
    postgres_server: Databases,
    redis_server: RedisKeyspace,
    command: str,
    store: str,
) -> None:
    variables = {
        "DATABASE_URL": await postgres_server.new_database(),
        "REDIS_URL": redis_server.url,
    }
    if command != "migrate":
        await migrated(tmp_path, variables)
    async with Proxy(variables[store]) as proxy:
        proxy.refuse()
        variables[store] = proxy.url
        async with running(tmp_path, variables, *COMMANDS.get(command, (command,))) as process:
            line = await said(process.stderr, "waiting up to 60 s")
            assert "cannot reach" in line
            if command != "migrate":
                assert json.loads(line)["level"] == "warning"
            proxy.go_on()
            ready = {"serve": "API", "dispatch": "dispatching", "migrate": "up to date"}[command]
            await said(process.stdout, ready)


@pytest.mark.parametrize("command", ["serve", "dispatch", "worker", "migrate"])
async def test_a_store_that_stays_away_ends_it_in_one_line(tmp_path: Path, command: str) -> None:
    (tmp_path / "app.py").write_text(WORKER)
    variables = {
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
        "REDIS_URL": "redis://127.0.0.1:1",
        "FAIRLANE_SERVER__WAIT_FOR_STORES": "0.2",
    }
    async with running(tmp_path, variables, *COMMANDS.get(command, (command,))) as process:
        out, error = await asyncio.wait_for(process.communicate(), LONG_ENOUGH)
    lines = error.decode().splitlines()
    assert (process.returncode, out, len(lines)) == (1, b"", 2), lines
    assert lines[1].startswith("fairlane: cannot reach PostgreSQL")
    assert "waited 0.2 s: --wait-for-stores" in lines[1]


async def test_a_worker_and_a_dispatcher_wait_for_the_first_serve(
    tmp_path: Path, postgres_server: Databases, redis_server: RedisKeyspace
) -> None:
    """Without a schema, then without settings; and they work as soon as there are some."""
    (tmp_path / "app.py").write_text(WORKER)
    variables = {
        "DATABASE_URL": await postgres_server.new_database(),
        "REDIS_URL": redis_server.url,
    }
    async with (
        running(tmp_path, variables, *COMMANDS["worker"]) as worker,
        running(tmp_path, variables, *COMMANDS["dispatch"]) as dispatcher,
    ):
        await said(worker.stderr, "no Fairlane schema")
        await said(dispatcher.stderr, "no Fairlane schema")
        await migrated(tmp_path, variables)
        await said(dispatcher.stdout, "dispatching")
        async with running(tmp_path, variables, *COMMANDS["serve"]) as api:
            await said(api.stdout, "API")
            await said(worker.stderr, "registered as")
