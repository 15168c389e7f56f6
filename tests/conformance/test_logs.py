"""What happens to jobs and services stands in the log, and nothing that callers or tasks wrote."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from fairlane.api.logs import JsonLines, TextLines
from fairlane.engine.settle import Done, Failed, GivenBack
from fairlane.engine.submit import Caller
from fairlane.model.attempt import Fault
from fairlane.model.job import NewJob
from fairlane.model.service import Region, Service
from fairlane.model.worker import Worker
from tests.world import World, catalog

CANARY = "canary-5f1c"
TRACE = "0af7651916cd43dd8448eb211c80319c"
EU = Worker("w", region="EU")


class Lines:
    """What was logged since the last look."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def new(self) -> list[dict[str, Any]]:
        ours = [each for each in self._caplog.records if each.name.startswith("fairlane.")]
        lines = [json.loads(JsonLines().format(each)) for each in ours]
        self._caplog.clear()
        return lines

    def said(self) -> list[tuple[str, str]]:
        return [(each["level"], each["message"]) for each in self.new()]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.DEBUG, "fairlane")
    return Lines(caplog)


async def test_a_job_is_in_the_log_from_its_submit_to_its_end(tmp_path: Path, lines: Lines) -> None:
    settings = catalog(Service("one"), Service("two"), pipelines={"both": ("one", "two")})
    async with World(settings, tmp_path / "ledger.db") as world:
        caller = Caller("acme")
        job = await world.submit("both", caller, input=CANARY, user=CANARY, trace=TRACE)
        await world.engine.complete(await world.claim_one(), {"made": CANARY})
        lease = await world.claim_one()
        await world.engine.fail(lease, message=CANARY)
        await world.pass_time(60)
        await world.engine.complete(await world.claim_one())
        found = lines.new()
    assert [(each["level"], each["message"]) for each in found] == [
        ("debug", "job submitted"),
        ("debug", "attempt started"),
        ("debug", "step completed"),
        ("debug", "attempt started"),
        ("info", "attempt failed, will be retried"),
        ("debug", "attempt started"),
        ("info", "job completed"),
    ]
    for each in found:
        assert (each["job"], each["tenant"], each["trace"]) == (job, "acme", TRACE)
    retried, ended = found[4], found[6]
    assert (retried["service"], retried["attempt"], retried["worker"]) == ("two", 1, "w")
    assert (retried["fault"], retried["retry_in_seconds"] > 0) == ("transient", True)
    assert (ended["attempt"], ended["step"], ended["outcome"]) == (2, 2, "completed")
    assert CANARY not in json.dumps(found)


async def test_every_way_to_end_a_job_is_in_the_log(tmp_path: Path, lines: Lines) -> None:
    settings = catalog(Service("work", max_attempts=1))
    async with World(settings, tmp_path / "ledger.db") as world:
        await world.submit()
        await world.engine.fail(await world.claim_one())
        assert lines.said()[-1] == ("warning", "job is a dead letter: its attempts are used up")
        job = await world.submit()
        await world.engine.settle([Failed(await world.claim_one(), Fault.INVALID_INPUT)])
        failed = lines.new()[-1]
        assert (failed["level"], failed["message"]) == ("info", "job failed")
        await world.engine.replay(job)
        assert lines.said() == [("info", "job replayed")]
        await world.engine.cancel(job)
        await world.submit(max_wait=1_000_000)
        await world.pass_time(2)
        assert [text for _, text in lines.said()] == [
            "job cancelled",
            "job submitted",
            "job failed: it waited too long",
        ]
        await world.submit_all([NewJob("work", {}, matrix={"a": ("1", "2")})])
        leases = await world.claim(2)
        await world.engine.settle([GivenBack(leases[0])])
        await world.engine.settle([Done(leases[1]), Done(await world.claim_one())])
        said = lines.said()
        assert ("debug", "attempt given back") in said
        assert said.count(("info", "fan-out ended")) == 1
        assert await world.engine.settle([Done(leases[0])])
        assert lines.said() == [("info", "late result refused: its lease was gone")]


async def test_what_was_done_before_is_not_in_the_log_again(tmp_path: Path, lines: Lines) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit()
        for _ in range(2):
            await world.engine.cancel(job, op="once")
        assert [text for _, text in lines.said()].count("job cancelled") == 1
        await world.submit()
        lease = await world.claim_one()
        await world.engine.complete(lease)
        await world.engine.settle([Done(lease)])
        assert [text for _, text in lines.said()].count("job completed") == 1


async def test_a_promotion_is_in_the_log_with_both_levels(tmp_path: Path, lines: Lines) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit(tier="low")
        lines.new()
        await world.pass_time(601, sweeps=6)
        (line,) = lines.new()
        assert (line["message"], line["job"], line["tenant"]) == ("job promoted", job, "default")
        assert (line["before"], line["now"]) == ("low", "medium")


async def test_a_circuit_breaker_is_in_the_log_when_it_opens_and_when_it_closes(
    tmp_path: Path, lines: Lines
) -> None:
    settings = catalog(Service("work", regions={"EU": Region("EU")}))
    async with World(settings, tmp_path / "ledger.db") as world:
        await world.submit_all([NewJob("work") for _ in range(6)])
        leases = await world.claim(3, EU)
        before = await world.claim(1, EU)
        for lease in leases:
            await world.engine.settle([Failed(lease, Fault.UNAVAILABLE, CANARY)])
        opened = [each for each in lines.new() if each["logger"] == "fairlane.services"]
        assert [(each["level"], each["service"], each["region"]) for each in opened] == [
            ("warning", "work", "EU")
        ]
        assert opened[0]["message"].startswith("circuit breaker opened")
        assert opened[0]["probe_in_seconds"] == 1
        await world.engine.settle([Done(lease) for lease in before])
        assert not [each for each in lines.new() if each["logger"] == "fairlane.services"]
        await world.pass_time(2)
        (probe,) = await world.claim(1, EU)
        await world.engine.settle([Failed(probe, Fault.UNAVAILABLE)])
        await world.pass_time(5)
        (probe,) = await world.claim(1, EU)
        await world.engine.complete(probe)
        (closed,) = [each for each in lines.new() if each["logger"] == "fairlane.services"]
        assert closed["message"] == "circuit breaker closed: the service answers again"


async def test_without_the_level_nothing_is_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "fairlane")
    async with World(catalog(), tmp_path / "ledger.db") as world:
        await world.submit()
        await world.engine.complete(await world.claim_one())
    assert not caplog.records


def test_text_of_a_terminal_has_the_same_fields_in_one_line() -> None:
    record = logging.makeLogRecord(
        {
            "msg": "job completed",
            "levelname": "INFO",
            "created": 1_700_000_000.25,
            "fields": {"job": "j1", "worker": "w\n\x1b[2J", "took_seconds": 0.5},
        }
    )
    assert TextLines().format(record) == (
        r"22:13:20 info    job completed  job=j1 worker=w\n\x1b[2J took_seconds=0.5"
    )
