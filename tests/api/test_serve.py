"""`fairlane serve` as a process: what it says, and how it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

from fairlane.cli import app
from fairlane.config.load import without_settings
from fairlane.ledger.sqlite.connect import Ownership
from fairlane.servers import Databases

EVERYWHERE = ".".join("0000")
SECRET = "admin." + "0123456789abcdef" * 4


def environment(**more: str) -> dict[str, str]:
    return {**without_settings(os.environ), **more}


Typed = Callable[..., tuple[int, str, str]]


async def started(folder: Path, *arguments: str, **more: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fairlane",
        *arguments,
        cwd=folder,
        env=environment(**more),
        stdout=PIPE,
        stderr=PIPE,
    )


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Runs commands in an empty folder, as far as they end by themselves."""
    monkeypatch.chdir(tmp_path)
    for name in set(os.environ) - set(environment()):
        monkeypatch.delenv(name)

    def run(*arguments: str, **more: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, arguments, env=more)
        return done.exit_code, done.stdout, done.stderr

    return run


@asynccontextmanager
async def serving(folder: Path, *arguments: str, **more: str) -> AsyncIterator[Running]:
    process = await started(folder, "serve", "--port", "0", *arguments, **more)
    try:
        yield await Running.of(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


class Running:
    def __init__(self, process: Process, said: str) -> None:
        self.process, self.said = process, said
        found = re.search(r"http://127\.0\.0\.1:\d+", said)
        assert found is not None, said
        self.url = found[0]

    @classmethod
    async def of(cls, process: Process) -> Running:
        assert process.stdout is not None
        said = b""
        while b"curl " not in said:
            line = await process.stdout.readline()
            if not line:
                _, wrong = await process.communicate()
                raise AssertionError(wrong.decode())
            said += line
        return cls(process, said.decode())


async def test_it_says_where_it_is_and_what_to_try(tmp_path: Path) -> None:
    async with serving(tmp_path) as running:
        assert "embedded, the ledger in .fairlane (preset tasks)" in running.said
        assert "keys  none" in running.said
        words = shlex.split(running.said.splitlines()[-1])
        assert words[0] == "curl"
        header, _, body = words[words.index("-H") + 1], *words[words.index("-d") :]
        name, _, value = header.partition(": ")
        async with httpx2.AsyncClient() as client:
            answer = await client.post(words[1], content=body, headers={name: value})
            assert answer.status_code == 202
            assert (await client.get(f"{running.url}/readyz")).text == "ok"


def test_a_port_that_is_taken_is_said_so(typed: Typed) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, _, wrong = typed("serve", "--port", port)
    assert (code, wrong) == (1, f"fairlane: port {port} is taken; choose another with --port\n")


def test_a_ledger_that_another_process_owns_is_said_so(tmp_path: Path, typed: Typed) -> None:
    (tmp_path / ".fairlane").mkdir()
    owner = Ownership(tmp_path / ".fairlane" / "ledger.db")
    code, _, wrong = typed("serve", "--port", "0")
    owner.release()
    assert code == 1
    assert "belongs to one process" in wrong


def test_it_does_not_open_to_everybody_without_a_key(typed: Typed) -> None:
    """S1: one line, and EX_CONFIG."""
    code, said, wrong = typed("serve", "--host", EVERYWHERE, "--port", "0")
    assert (code, said, wrong.count("\n")) == (78, "", 1)
    assert "there is no API key" in wrong


def test_keys_are_made_listed_and_revoked(typed: Typed) -> None:
    code, said, _ = typed("keys", "create", "--role", "admin", "--name", "ops")
    assert code == 0
    name = said.partition(".")[0]
    assert typed("keys", "list")[1].count("valid") == 1
    assert typed("keys", "revoke", name)[0] == 0
    assert typed("keys", "list")[1].count("revoked") == 1
    assert typed("keys", "revoke", "nobody")[0] == 1
    assert typed("keys", "create", "--role", "king")[0] == 78


async def test_the_environment_brings_the_first_key(tmp_path: Path) -> None:
    arguments = ("--host", EVERYWHERE, "--config", "settings.toml")
    (tmp_path / "settings.toml").write_text("[server]\naccess_log = true\n")
    async with serving(tmp_path, *arguments, FAIRLANE_ADMIN_KEY=f"{SECRET}\n") as running:
        assert "FAIRLANE_KEY" in running.said.splitlines()[-1]
        headers = {"Authorization": f"Bearer {SECRET}"}
        async with httpx2.AsyncClient(base_url=running.url) as client:
            assert (await client.get("/admin/keys")).status_code == 401
            wrong_query = await client.get("/admin/keys?x=canary", headers=headers)
            assert wrong_query.status_code == 422
            answer = await client.get("/admin/keys", headers=headers)
            assert [each["id"] for each in answer.json()["keys"]] == ["admin"]
        running.process.send_signal(signal.SIGTERM)
        _, wrong = await running.process.communicate()
        lines = [json.loads(line) for line in wrong.decode().splitlines()]
        assert [line["status"] for line in lines if line["message"] == "request"] == [401, 422, 200]
        assert lines[1]["key"] == "admin"
        assert "canary" not in wrong.decode()


@pytest.mark.parametrize(
    ("key", "why"), [("short", "id.secret"), ("local." + "x" * 32, "choose another id")]
)
def test_a_first_key_that_cannot_be_one_is_refused(typed: Typed, key: str, why: str) -> None:
    code, _, wrong = typed("serve", "--port", "0", FAIRLANE_ADMIN_KEY=key)
    assert (code, why in wrong) == (1, True)


async def test_a_first_key_with_another_secret_than_before_is_not_overlooked(
    tmp_path: Path, typed: Typed
) -> None:
    """Who changed the secret of a container would else be a stranger, and not know why."""
    async with serving(tmp_path, FAIRLANE_ADMIN_KEY=SECRET) as running:
        running.process.send_signal(signal.SIGTERM)
        await running.process.communicate()
    changed = "admin." + "y" * 40
    code, _, wrong = await asyncio.to_thread(
        typed, "serve", "--port", "0", FAIRLANE_ADMIN_KEY=changed
    )
    assert (code, 'the key id "admin" is taken' in wrong) == (1, True)
    async with serving(tmp_path, FAIRLANE_ADMIN_KEY=SECRET) as running:
        assert "keys  none" not in running.said


def test_every_mistake_in_the_settings_is_named(tmp_path: Path, typed: Typed) -> None:
    (tmp_path / "fairlane.toml").write_text("[server]\nprot = 1\n")
    for command in ("serve", "check", "migrate"):
        code, _, wrong = typed(command)
        assert (code, wrong) == (
            78,
            'fairlane.toml: server.prot: no such setting; did you mean "port"?\n',
        )


def test_settings_are_written_and_explained(typed: Typed) -> None:
    assert "image_gen: called at" in typed("check", "--preset", "gateway")[1]
    assert typed("init", "--preset", "gateway")[0] == 0
    assert typed("init")[0] == 1
    assert typed("init", "x.toml", "--preset", "gatway")[2].endswith('did you mean "gateway"?\n')
    code, said, _ = typed("check")
    assert code == 0
    assert "image_gen: called at http://127.0.0.1:9003; at most 1 at once" in said


@pytest.mark.every_store
async def test_a_database_is_used_only_after_somebody_said_so(
    tmp_path: Path, typed: Typed, postgres_server: Databases
) -> None:
    """Many shells carry the address of another program's database."""
    url = await postgres_server.new_database()
    more = {"DATABASE_URL": url, "FAIRLANE_SERVER__UNSAFE": "true"}
    for command in (("serve", "--port", "0"), ("keys", "list")):
        code, _, wrong = await asyncio.to_thread(typed, *command, **more)
        assert code == 1
        assert "no Fairlane schema; make it with: fairlane migrate; without DATABASE_URL" in wrong
    assert (await asyncio.to_thread(typed, "migrate", **more))[0] == 0
    async with serving(tmp_path, **more) as running, httpx2.AsyncClient() as client:
        assert "PostgreSQL, one process" in running.said
        answer = await client.post(f"{running.url}/api/v1/jobs", json={"feature_name": "x"})
        assert answer.status_code == 202
