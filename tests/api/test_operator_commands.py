"""`fairlane jobs`, `services`, `workers`, `users`, `keys`, `dead`: what operators type."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from fairlane import WorkerSpec
from fairlane.cli import app
from fairlane.cli.tables import clean
from fairlane.config.load import without_settings
from fairlane.model.key import Role
from tests.api.server import Gateway, free_port
from tests.core import core_of
from tests.world import World

NOBODY = "018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f"


class Said(NamedTuple):
    code: int
    out: str
    wrong: str


Typed = Callable[..., Coroutine[Any, Any, Said]]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: Gateway) -> Typed:
    """Commands in a folder whose fairlane.toml names the server."""
    folder = tmp_path / "operator"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in set(os.environ) - set(without_settings(os.environ)):
        monkeypatch.delenv(name)
    (folder / "fairlane.toml").write_text(
        f"[server]\nport = {served.port}\n"
        '[services.x]\nurl = "http://x"\nheaders = { A = "env:A_SECRET_OF_THE_SERVER" }\n'
    )

    async def run(*arguments: str, sent: str = "", **variables: str) -> Said:
        def invoke() -> Said:
            done = CliRunner().invoke(
                app, arguments, env=variables, input=sent, catch_exceptions=False
            )
            return Said(done.exit_code, done.stdout, done.stderr)

        return await asyncio.to_thread(invoke)

    return run


def write(name: str, text: str) -> None:
    """A file where the commands run."""
    Path(name).write_text(text)


async def told(typed: Typed, *arguments: str, **variables: str) -> str:
    said = await typed(*arguments, **variables)
    assert said.code == 0, said.wrong
    return said.out


# --- jobs ----------------------------------------------------------------------------------------
async def test_a_job_is_submitted_listed_shown_explained_and_cancelled(typed: Typed) -> None:
    said = await told(typed, "jobs", "submit", "scarce", '{"a": 1}', "--user", "ada", "--tag", "t")
    job = said.split()[0]
    assert "queued" in said
    listed = await told(typed, "jobs", "list", "--user", "ada", "--tag", "t", "--status", "queued")
    assert job in listed
    assert "1 shown" in listed
    assert job not in await told(typed, "jobs", "list", "--status", "running")
    shown = await told(typed, "jobs", "show", job)
    assert "user" in shown
    assert "ada" in shown
    assert "no live worker runs scarce" in await told(typed, "jobs", "explain", job)
    assert f"{job}  cancelled" in await told(typed, "jobs", "cancel", job)
    again = await typed("jobs", "cancel", job)
    assert (again.code, again.wrong.count("\n")) == (1, 1)
    assert "cancel is not possible" in again.wrong


async def test_every_answer_can_be_had_as_json(typed: Typed) -> None:
    sent = ("jobs", "submit", "scarce", "--json", "--set", "duration=2", "--set", "model=sdxl")
    job = json.loads(await told(typed, *sent))["job_id"]
    for command in (
        ("jobs", "show", job),
        ("jobs", "explain", job),
        ("jobs", "list"),
        ("services",),
        ("services", "set", "scarce", "--rate", "60"),
        ("workers",),
        ("users", "set-tier", "ada", "high"),
        ("users", "add-credits", "ada", "5"),
        ("users", "show", "ada"),
        ("users", "statement", "ada"),
        ("dead",),
        ("dead", "replay"),
        ("dead", "purge", "--yes"),
        ("jobs", "cancel", job),
    ):
        assert isinstance(json.loads(await told(typed, *command, "--json")), dict), command


async def test_a_list_longer_than_a_page_is_complete(typed: Typed, world: World) -> None:
    jobs = {await world.submit() for _ in range(250)}
    listed = json.loads(await told(typed, "jobs", "list", "--limit", "1000", "--json"))
    assert (len(listed["jobs"]), listed["next"]) == (250, None)
    assert {job["job_id"] for job in listed["jobs"]} == jobs
    some = json.loads(await told(typed, "jobs", "list", "--limit", "220", "--json"))
    assert (len(some["jobs"]), some["next"] is None) == (220, False)


async def test_input_comes_from_a_file_or_from_standard_input(typed: Typed) -> None:
    write("input.json", '{"from": "file"}')
    job = (await told(typed, "jobs", "submit", "scarce", "@input.json")).split()[0]
    shown = json.loads(await told(typed, "jobs", "show", job, "--json"))
    assert shown["input_data"] == {"from": "file"}
    said = await typed("jobs", "submit", "scarce", "-", "--json", sent="[1, 2]")
    job = json.loads(said.out)["job_id"]
    shown = json.loads(await told(typed, "jobs", "show", job, "--json"))
    assert shown["input_data"] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("jobs", "submit", "scarce", "no json"), "the input is not JSON"),
        (("jobs", "submit", "scarce", "@nowhere"), "cannot read nowhere"),
        (("jobs", "submit", "scarce", "--set", "duration"), "is not FIELD=VALUE"),
        (("jobs", "list", "--url", "localhost:1"), "must begin with http://"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
async def test_wrong_usage_is_one_line(typed: Typed, arguments: tuple[str, ...], why: str) -> None:
    said = await typed(*arguments)
    assert (said.code, said.out, said.wrong.count("\n")) == (2, "", 1)
    assert why in said.wrong


async def test_a_job_is_followed_to_its_end(typed: Typed, world: World) -> None:
    following = asyncio.create_task(typed("jobs", "submit", "scarce", '{"a": 1}', "--wait"))
    gpu = await world.engine.register(WorkerSpec("gpu"))
    (lease,) = await world.engine.claim(gpu, wait=60)
    await world.engine.complete(lease, {"made": "it"})
    said = await following
    assert said.code == 0, said.wrong
    lines = [line[10:] for line in said.out.splitlines() if line[2:3] == ":"]
    assert lines[-1] == "Completed"
    assert '"made": "it"' in said.out


async def test_following_a_job_that_fails_ends_with_a_code_of_its_own(
    typed: Typed, world: World
) -> None:
    job = (await told(typed, "jobs", "submit", "scarce")).split()[0]
    (lease,) = await world.engine.claim(await world.engine.register(WorkerSpec("gpu")))
    await world.engine.fail(lease, message="no\x1b[2J memory")
    said = await typed("jobs", "follow", job, "--json")
    assert said.code == 3
    assert json.loads(said.out.splitlines()[-1])["status"] == "dead"
    said = await typed("jobs", "follow", job)
    assert (said.code, "\x1b" in said.out) == (3, False)
    assert r"no\x1b[2J memory" in said.out
    assert job in await told(typed, "dead")
    assert r"no\x1b[2J memory" in await told(typed, "dead", "show", job)
    assert "queued" in await told(typed, "jobs", "replay", job)


# --- services, workers, users --------------------------------------------------------------------
async def test_limits_are_changed_and_services_paused(typed: Typed, served: Gateway) -> None:
    assert "scarce" in await told(typed, "services")
    await told(typed, "services", "set", "scarce", "--limit", "7")
    await told(typed, "services", "pause", "scarce")
    service = core_of(served.engine).catalog.service("scarce")
    assert (service.limit, service.paused) == (7, True)
    assert "paused" in await told(typed, "services", "list")
    await told(typed, "services", "unpause", "scarce")
    assert not core_of(served.engine).catalog.service("scarce").paused
    assert (await typed("services", "set", "scarce")).code == 2
    assert (await typed("services", "set", "nothing", "--limit", "1")).code == 1


async def test_workers_are_listed_and_drained(typed: Typed, world: World) -> None:
    await world.engine.register(WorkerSpec("gpu-1"))
    assert "gpu-1" in await told(typed, "workers")
    assert "gpu-1  draining, 0 still running" in await told(typed, "workers", "drain", "gpu-1")


async def test_users_have_a_tier_and_credits(typed: Typed) -> None:
    assert "none stored" in await told(typed, "users", "show", "a/b")
    assert await told(typed, "users", "set-tier", "a/b", "high") == "a/b  high\n"
    give = ("users", "add-credits", "a/b", "5", "--operation-key", "once")
    assert await told(typed, *give) == "a/b  5 aura\n"
    assert await told(typed, *give) == "a/b  5 aura\n"
    shown = json.loads(await told(typed, "users", "show", "a/b", "--json"))
    assert shown == {"user_id": "a/b", "priority": "high", "balance": 5}
    assert (await typed("users", "set-tier", "a/b", "gold")).code == 1


async def test_a_statement_is_printed_as_a_table_as_json_and_as_csv(
    typed: Typed, world: World
) -> None:
    for n in range(250):
        await world.engine.add_credits("a/b", -1 if n % 2 else 3, f"op {n}", "=1" if n else "")
    shown = await told(typed, "users", "statement", "a/b")
    assert "250 entries; balance: 250 aura" in shown
    assert "withdrawal" in shown
    assert "+3" in shown
    whole = json.loads(await told(typed, "users", "statement", "a/b", "--json"))
    keys = [each["operation_key"] for each in whole["entries"]]
    assert (keys, whole["next"]) == ([f"op {n}" for n in reversed(range(250))], None)
    table = await told(typed, "users", "statement", "a/b", "--csv")
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["operation_key"] for row in rows] == keys
    assert (rows[0]["amount"], rows[0]["balance"], rows[0]["note"]) == ("-1", "250", "'=1")
    some = await told(typed, "users", "statement", "a/b", "--until", "1971-01-01T00:00:00Z")
    assert "0 entries; balance: 250 aura" in some
    assert (await typed("users", "statement", "a/b", "--since", "then")).code == 1


# --- where, and with which key -------------------------------------------------------------------
async def test_keys_are_made_and_revoked_over_http_where_a_server_is_named(
    typed: Typed, served: Gateway
) -> None:
    made = await told(
        typed, "keys", "create", "--role", "admin", "--days", "2", "--url", served.url
    )
    admin = made.strip()
    denied = await typed("jobs", "list")
    assert (denied.code, denied.wrong.count("\n")) == (77, 1)
    assert "the server requires a key; send one with --key or FAIRLANE_KEY" in denied.wrong
    client = await told(typed, "keys", "create", FAIRLANE_URL=served.url, FAIRLANE_KEY=admin)
    name = client.partition(".")[0]
    assert "valid" in await told(typed, "keys", "--url", served.url, "--key", admin)
    assert "1 shown" not in await told(typed, "jobs", "list", "--key", client.strip())
    too_little = await typed("services", "pause", "scarce", "--key", client.strip())
    assert (too_little.code, too_little.wrong.count("\n")) == (77, 1)
    await told(typed, "keys", "revoke", name, "--url", served.url, "--key", admin)
    over = await typed("jobs", "list", "--key", client.strip())
    assert (over.code, "this key is not valid" in over.wrong) == (77, True)
    none = await typed("keys", "revoke", "nobody", "--url", served.url, "--key", admin)
    assert none.code == 1


async def test_a_named_server_wins_over_a_variable_and_a_variable_over_the_file(
    typed: Typed, served: Gateway
) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    said = await typed("jobs", "list", FAIRLANE_URL=nowhere)
    assert (said.code, said.wrong.count("\n")) == (69, 1)
    assert f"{nowhere} did not answer" in said.wrong
    assert "--url" in said.wrong
    assert (await typed("jobs", "list", "--url", served.url, FAIRLANE_URL=nowhere)).code == 0
    write("other.toml", f'[server]\nhost = "0.0.0.0"\nport = {served.port}\n')
    write("fairlane.toml", "[server]\nport = 1\n")
    assert (await typed("jobs", "list", "--config", "other.toml")).code == 0
    write("fairlane.toml", '[server]\nport = "x"\n')
    said = await typed("jobs", "list")
    assert (said.code, "fairlane.toml: server.port" in said.wrong) == (78, True)


async def test_a_job_that_is_not_there_is_said_with_the_next_move(typed: Typed) -> None:
    for verb in ("show", "explain", "cancel", "resume", "follow"):
        said = await typed("jobs", verb, NOBODY)
        assert (said.code, said.wrong.count("\n")) == (1, 1)
        assert "to list jobs: fairlane jobs list" in said.wrong


async def test_a_reader_sees_jobs_and_moves_none(typed: Typed, served: Gateway) -> None:
    key = await served.key(Role.READ, tenant="default")
    assert (await typed("jobs", "list", "--key", key)).code == 0
    assert (await typed("jobs", "submit", "scarce", "--key", key)).code == 77


# --- for people ----------------------------------------------------------------------------------
async def test_the_version_is_an_option_too(typed: Typed) -> None:
    assert (await told(typed, "--version")).startswith("fairlane ")


@pytest.mark.parametrize("group", ["jobs", "services", "workers", "users", "keys", "dead"])
async def test_every_group_explains_itself(typed: Typed, group: str) -> None:
    assert "Usage" in await told(typed, group, "--help")


def test_text_of_others_cannot_command_the_terminal() -> None:
    assert clean("a\x1b[31m\nb\u202e") == r"a\x1b[31m\nb\u202e"
    assert clean("höher 高") == "höher 高"
