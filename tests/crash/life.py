"""One life of a process, and its diary: what it asked for, and what it was answered."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple, cast

from fairlane.clock import ManualClock, seconds
from fairlane.compose import embedded
from fairlane.engine import Engine
from fairlane.engine.settle import Done, Failed, GivenBack, Report
from fairlane.errors import FairlaneError
from fairlane.index.index import Index
from fairlane.ledger.messages import Settled
from fairlane.model.lease import Lease
from fairlane.model.step import Step
from fairlane.model.worker import Loaded, Worker
from tests.core import core_of
from tests.crash.failpoints import Failpoints, WatchedIndex, watched_connection
from tests.crash.scenarios import REQUESTS, WAYS, Call, settings


class Diary:
    """Lines that outlive the process that wrote them."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, what: str, *facts: Any) -> None:
        os.write(self._file, json.dumps([what, *facts]).encode() + b"\n")

    def told(self, job: str, rev: int) -> None:
        self.write("told", job, rev)


class Life:
    """Runs calls and writes each down before, and again after the answer."""

    def __init__(self, folder: Path, points: Failpoints, clock: ManualClock) -> None:
        self.folder, self.points, self.clock = folder, points, clock
        self.diary = Diary(folder / "diary")
        self.known = Known()
        self.starts = 0
        self.engine: Engine

    async def begin(self) -> None:
        self.starts += 1
        self.engine = await embedded(
            settings(),
            self.folder / "ledger.db",
            clock=self.clock,
            sweeping=False,
            seed=self.clock.now() + self.starts,
            connection=watched_connection(self.points),
        )
        core = core_of(self.engine)
        core.index = cast(Index, WatchedIndex(core.index, self.points, self.diary.told))
        await self.engine.start()

    async def do(self, call: Call) -> None:
        self.diary.write("asks", *call)
        answer = await self.perform(call)
        self.diary.write("answered", answer, self.clock.now())
        self.known.learn(call, answer)

    async def perform(self, call: Call) -> Any:
        verb, args = call
        match verb:
            case "submit":
                outcomes = await self.engine.submit_many([REQUESTS[tag] for tag in args["tags"]])
                assert not [each for each in outcomes if isinstance(each, FairlaneError)], outcomes
                return [cast(Any, outcome).job for outcome in outcomes]
            case "claim":
                services = frozenset(args["services"]) if args["services"] else None
                leases = await self.engine.claim(Worker(args["worker"], services), args["n"])
                return [as_json(lease) for lease in leases]
            case "settle":
                return await self._settle(args["reports"])
            case "skip":
                return (await self.engine.skip(self.known.jobs[args["job"]])).price
            case "cancel" | "replay" | "resume":
                move = getattr(self.engine, verb)
                return await move(self.known.jobs[args["job"]], op=f"{verb} {args['job']}")
            case _:
                return await self._upkeep(verb, args)

    async def _settle(self, reports: list[tuple[str, str]]) -> list[str | None]:
        outcomes = await self.engine.settle(
            [report(self.known.leases[name], way) for name, way in reports]
        )
        return [outcome.state if isinstance(outcome, Settled) else None for outcome in outcomes]

    async def _upkeep(self, verb: str, args: dict[str, Any]) -> None:
        match verb:
            case "advance":
                self.clock.advance(seconds(args["seconds"]))
            case "sweep":
                await self.engine.sweep()
            case "rebuild":
                await self.engine.rebuild()
            case "restart":
                await self.engine.stop()
                await self.begin()
            case "limit":
                await self.engine.change("services", args["service"], "limit", args["limit"])
            case "forge":
                core = core_of(self.engine)
                true = core.entry(await self.engine.get(self.known.jobs[args["job"]]))
                await core.index.put([true._replace(rev=true.rev + 5, score=0)], core.now())
            case "propose":
                core = core_of(self.engine)
                worker = Worker("forgetful")
                await core.index.claim(worker, Loaded(), args["n"], core.now(), core.epoch)
            case _:
                raise AssertionError(f"no such call: {verb}")


class Known:
    """What a client or worker knows from the answers it got."""

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        self.leases: dict[str, Lease] = {}

    def learn(self, call: Call, answer: Any) -> None:
        if call.verb == "submit":
            self.jobs.update(zip(call.args["tags"], answer, strict=True))
        elif call.verb == "claim":
            tags = {job: tag for tag, job in self.jobs.items()}
            for each in answer:
                lease = from_json(each)
                cell = f"/{lease.input['n']}" if lease.parent else ""
                self.leases[tags[lease.parent or lease.job] + cell] = lease


class Asked(NamedTuple):
    call: Call
    answered: bool = False
    answer: Any = None


class Story(NamedTuple):
    """The calls in order, the last one perhaps unanswered; when the last answer came; and the
    newest rev of each job that the index has taken in."""

    asked: list[Asked]
    at: int
    told: dict[str, int]


def read_diary(path: Path) -> Story:
    asked: list[Asked] = []
    told: dict[str, int] = {}
    at = 0
    for line in path.read_text("utf-8").splitlines():
        what, *facts = json.loads(line)
        if what == "asks":
            asked.append(Asked(Call(*facts)))
        elif what == "answered":
            answer, at = facts
            asked[-1] = Asked(asked[-1].call, answered=True, answer=answer)
        else:
            job, rev = facts
            told[job] = max(rev, told.get(job, 0))
    return Story(asked, at, told)


def report(lease: Lease, way: str) -> Report:
    if way == "done":
        return Done(lease, output_of(lease))
    if way == "back":
        return GivenBack(lease)
    return Failed(lease, WAYS[way], "it broke", closed=way != "open")


def output_of(lease: Lease) -> dict[str, Any]:
    """A quality check passes; to reject is the way "quality"."""
    return {"token": lease.token, **({"passed": True} if lease.checked_step else {})}


def as_json(lease: Lease) -> dict[str, Any]:
    return {**lease._asdict(), "plan": [step.as_list() for step in lease.plan]}


def from_json(values: dict[str, Any]) -> Lease:
    plan = tuple(Step.from_list(step) for step in values["plan"])
    return Lease(**{**values, "plan": plan})
