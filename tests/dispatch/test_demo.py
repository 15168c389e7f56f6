"""The demo as a user has it: what it prints works, and what is killed loses nothing."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from fairlane.cli import app

pytestmark = pytest.mark.embedded


class Demo:
    """A running one, and everything it said before its first figures."""

    def __init__(self, process: Process, said: str) -> None:
        self._process, self._said = process, said

    @property
    def pids(self) -> list[int]:
        found = re.search(r"kill -9 ([\d ]+)", self._said)
        assert found is not None, self._said
        return [int(pid) for pid in found[1].split()]

    @property
    def page(self) -> str:
        """The dashboard: the first thing it says."""
        found = re.match(r"Fairlane: open (\S+)", self._said)
        assert found is not None, self._said
        return found[1]

    def command(self, mark: str) -> list[str]:
        """The words of the command that it printed after this mark."""
        (words,) = self.commands(mark)
        return words

    def commands(self, mark: str) -> list[list[str]]:
        lines = [each for each in self._said.splitlines() if each.startswith(f"  {mark} ")]
        return [shlex.split(line.removeprefix(f"  {mark} ")) for line in lines]

    async def until(self, text: str) -> None:
        """Returns when it has said so."""
        assert self._process.stdout is not None
        while text not in self._said:
            line = await self._process.stdout.readline()
            assert line, self._said
            self._said += line.decode()

    async def try_it(self) -> str:
        """Sends exactly what the printed command sends; the address of the job."""
        words = self.command("try")
        assert words[0] == "curl"
        name, _, value = words[words.index("-H") + 1].partition(": ")
        body = words[words.index("-d") + 1]
        async with httpx2.AsyncClient() as client:
            answer = await client.post(words[1], content=body, headers={name: value})
        assert answer.status_code == 202, answer.text
        return str(httpx2.URL(words[1]).join(answer.headers["Location"]))

    async def all_works(self) -> list[dict[str, Any]]:
        """Uses all that it printed: the job completes, the pages open; what there is to look at."""
        job = await self.try_it()
        async with httpx2.AsyncClient(timeout=60) as client:
            await client.get(f"{job}/events", headers={"Accept": "text/event-stream"})
            assert (await client.get(job)).json()["status"] == "completed"
            for page in (self.page, self.command("docs")[0]):
                assert (await client.get(page)).status_code == 200
            return [(await client.get(words[1])).json() for words in self.commands("look")]

    async def leave(self) -> str:
        """Its last words after Ctrl-C."""
        self._process.send_signal(signal.SIGINT)
        said, wrong = await self._process.communicate()
        assert self._process.returncode == 0, said.decode() + wrong.decode()
        return said.decode()


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[Demo]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairlane", "demo", "--port", "0", *arguments,
        stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    demo = Demo(process, "")
    try:
        await demo.until(" accepted, ")
        yield demo
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_what_the_demo_prints_works_and_ctrl_c_ends_it_with_a_summary() -> None:
    async with running("--speed", "500") as demo:
        (status,) = await demo.all_works()
        assert status["services"]["image_gen"]["limit"] == 1
        last = await demo.leave()
    assert " 0 failed, 0 lost" in last
    assert "\n0 calls above a limit; the ledger is sound\n" in last


@pytest.mark.long
async def test_a_gateway_that_is_killed_comes_back_and_nothing_is_lost() -> None:
    async with running("--speed", "500") as demo:
        (pid,) = demo.pids
        os.kill(pid, signal.SIGKILL)
        await demo.until("fairlane serve was killed; starting it again")
        await demo.until("waiting for fairlane serve to start")
        await demo.until("fairlane serve was killed; it has been started again")
        await demo.try_it()
        assert " 0 failed, 0 lost" in await demo.leave()


@pytest.mark.long
async def test_a_cluster_of_which_half_is_killed_goes_on_and_loses_nothing() -> None:
    async with running("--speed", "500", "--cluster") as demo:
        api, _, dispatcher, _ = demo.pids
        for pid in (api, dispatcher):
            os.kill(pid, signal.SIGKILL)
        await demo.until("fairlane serve was killed; it has been started again")
        await demo.until("fairlane dispatch was killed; it has been started again")
        await demo.try_it()
        last = await demo.leave()
    assert " 0 failed, 0 lost" in last
    assert "\n0 calls above a limit; the ledger is sound\n" in last


# --- the generation queue ------------------------------------------------------------------------
GENERATION = ("--preset", "generation", "--speed", "50")


async def test_the_generation_demo_shows_its_gpu_and_counts_loads_at_the_end() -> None:
    async with running(*GENERATION) as demo:
        job = await demo.try_it()
        async with httpx2.AsyncClient(timeout=60) as client:
            task = job.replace("/generate/", "/api/v1/jobs/")
            await client.get(f"{task}/events", headers={"Accept": "text/event-stream"})
            generated = (await client.get(job)).json()
            own, status, queue = [
                (await client.get(words[1])).json() for words in demo.commands("look")
            ]
        assert generated["status"] == "completed"
        assert generated["result"]["url"].endswith(".wav")
        assert set(status["models"]) <= {"music", "audio"}
        assert "queue_length" in own
        assert queue["service"] == "generate"
        await demo.until(" refused (")
        await demo.until("GPU: music")
        last = await demo.leave()
    assert " 0 failed, 0 lost" in last
    assert re.search(r"\d+ loads for \d+ jobs; order of arrival: \d+ loads\n", last)
    assert re.search(r"paid skips: \d+ for \d+ aura, \d+ aura refunded\n", last)
    assert last.endswith("\nthe ledger is sound\n")


@pytest.mark.long
@pytest.mark.parametrize("where", [(), ("--cluster",)], ids=["embedded", "cluster"])
async def test_a_gpu_and_then_a_server_that_are_killed_lose_no_generation(
    where: tuple[str, ...],
) -> None:
    async with running(*GENERATION, *where) as demo:
        server, *_, worker = demo.pids
        await demo.until("GPU: music")
        os.kill(worker, signal.SIGKILL)
        await demo.until("fairlane worker was killed; it has been started again")
        os.kill(server, signal.SIGKILL)
        await demo.until("fairlane serve was killed; it has been started again")
        await demo.try_it()
        last = await demo.leave()
    assert " 0 failed, 0 lost" in last
    assert last.endswith("\nthe ledger is sound\n")


# --- regions and tasks ---------------------------------------------------------------------------
async def test_the_regions_demo_moves_jobs_out_of_a_region_that_is_down() -> None:
    async with running("--preset", "regions", "--speed", "500") as demo:
        (status,) = await demo.all_works()
        assert set(status["regions"]) == {"US", "EU", "ASIA"}
        assert status["providers"]["modal"]["limit"] == 10
        await demo.until(" moved to another region")
        last = await demo.leave()
    assert " 0 failed, 0 lost" in last
    assert re.search(r"\nEU was down (once|\d+ times), [1-9]\d* retries moved to another reg", last)
    assert re.search(r"modal had at most \d+ of 10 calls at once\n", last)
    assert last.endswith("\n0 calls above a limit; the ledger is sound\n")


async def test_the_tasks_demo_runs_its_workers_in_processes_of_their_own() -> None:
    async with running("--preset", "tasks", "--speed", "200") as demo:
        assert len(demo.pids) == 5
        _, stats = await demo.all_works()
        assert stats["workers"]["total_capacity"] >= 7  # without the worker that is killed
        last = await demo.leave()
    assert " 0 failed, 0 lost" in last
    assert last.endswith("\n0 tasks above the limit of a worker; the ledger is sound\n")


@pytest.mark.long
@pytest.mark.parametrize("where", [(), ("--cluster",)], ids=["embedded", "cluster"])
async def test_a_worker_that_the_demo_kills_comes_back_and_no_task_is_lost(
    where: tuple[str, ...],
) -> None:
    async with running("--preset", "tasks", "--speed", "50", *where) as demo:
        await demo.until("gpu_2 is away")
        await demo.until("fairlane worker was killed; it has been started again")
        await demo.try_it()
        last = await demo.leave()
    assert " 0 failed, 0 lost" in last
    assert re.search(r"\ngpu_2 was killed (once|\d+ times); models were loaded \d+ times\n", last)
    assert last.endswith("\n0 tasks above the limit of a worker; the ledger is sound\n")


@pytest.mark.long
async def test_a_server_of_the_regions_demo_that_is_killed_exceeds_no_limit() -> None:
    async with running("--preset", "regions", "--speed", "500") as demo:
        (pid,) = demo.pids
        os.kill(pid, signal.SIGKILL)
        await demo.until("fairlane serve was killed; it has been started again")
        await demo.try_it()
        last = await demo.leave()
    assert " 0 failed, 0 lost" in last
    assert last.endswith("\n0 calls above a limit; the ledger is sound\n")


def test_what_needs_a_cluster_says_so() -> None:
    for command in (["serve", "--no-dispatch"], ["dispatch"]):
        done = CliRunner().invoke(app, command)
        assert (done.exit_code, "needs a cluster" in done.stderr) == (2, True)


def test_the_demo_ends_by_itself_when_asked_to() -> None:
    done = CliRunner().invoke(app, ["demo", "--seconds", "1", "--speed", "1000", "--port", "0"])
    assert done.exit_code == 0, done.output
    assert "\n0 calls above a limit;" in done.output


def test_a_port_that_is_taken_is_said_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = CliRunner().invoke(app, ["demo", "--port", port])
    said = f"fairlane: port {port} is taken; choose another with --port\n"
    assert (done.exit_code, done.stderr, done.stdout) == (1, said, "")
