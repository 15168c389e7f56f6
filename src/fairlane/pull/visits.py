"""Polls that are open: each comes back when a lease that its worker named is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from fairlane.background import end
from fairlane.clock import SECOND
from fairlane.engine import Engine
from fairlane.pull.shapes import Ref

log = logging.getLogger("fairlane")

LOOK = SECOND // 2
"""How often the ledger is asked which leases still hold. Moves made in this process are known at
once."""

REST = 0.02
"""Seconds between two looks, however much is going on."""


@dataclass(eq=False)
class Visit:
    """`stop` ends it; `left` = nobody waits for its answer."""

    worker: str
    call: str
    refs: dict[str, Ref]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    left: bool = False
    followed: bool = False

    def leave(self) -> None:
        self.left = True
        self.stop.set()


class Visits:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: set[Visit] = set()
        self._news = asyncio.Event()
        self._any = asyncio.Event()
        self._dismissed = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self.dismiss()
        await end(self._task)

    @property
    def dismissed(self) -> bool:
        return self._dismissed

    def dismiss(self) -> None:
        """Every visit ends, and none begins."""
        self._dismissed = True
        for visit in self._open:
            visit.stop.set()

    def end_of(self, worker: str) -> None:
        """The worker has something to hear."""
        for visit in self._open:
            if visit.worker == worker:
                visit.stop.set()

    def forget(self, worker: str, tokens: Iterable[str]) -> None:
        """The worker itself ends these: no news to it."""
        gone = set(tokens)
        for visit in self._open:
            if visit.worker == worker:
                for token in gone & visit.refs.keys():
                    del visit.refs[token]

    async def follow(self, worker: str, call: str) -> None:
        """An earlier try at the same call is over; what it got is left for this one."""
        for visit in list(self._open):
            if visit.worker == worker and visit.call == call:
                visit.followed = True
                visit.leave()
                await visit.over.wait()

    @contextmanager
    def open(self, worker: str, call: str, refs: Sequence[Ref]) -> Iterator[Visit]:
        visit = Visit(worker, call, {ref.lease: ref for ref in refs})
        with ExitStack() as stack:
            for task in {ref.task for ref in refs}:
                stack.enter_context(self._engine.core.watchers.watching(task, self._news))
            self._open.add(visit)
            self._any.set()
            if self._dismissed:
                visit.stop.set()
            try:
                yield visit
            finally:
                self._open.discard(visit)
                visit.over.set()
                if not self._open:
                    self._any.clear()

    async def _run(self) -> None:
        clock = self._engine.core.clock
        while True:
            await self._any.wait()
            await clock.wait(self._news, LOOK)
            self._news.clear()
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - whatever it is, the work goes on
                log.warning("cannot look after the leases of workers, trying again: %r", error)
                await clock.sleep(LOOK)
            await asyncio.sleep(REST)

    async def _look(self) -> None:
        asked = [(visit, list(visit.refs.values())) for visit in self._open]
        pairs = [(ref.task, ref.lease) for _, refs in asked for ref in refs]
        if not pairs:
            return
        still = await self._engine.core.ledger.holding(pairs)
        for visit, refs in asked:
            if any(ref.lease in visit.refs and ref.lease not in still for ref in refs):
                visit.stop.set()
