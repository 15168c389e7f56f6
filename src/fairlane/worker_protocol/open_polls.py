"""Open long polls: each returns early when a lease that its worker named is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from fairlane.background import end
from fairlane.engine import Engine
from fairlane.units import SECOND
from fairlane.worker_protocol.messages import Ref

log = logging.getLogger("fairlane")

LEASE_CHECK_MICROSECONDS = SECOND // 2
"""How often the ledger is asked which leases still hold. Moves made in this process are known at
once."""

MIN_CHECK_PAUSE_SECONDS = 0.02
"""Seconds between two looks, however much is going on."""


@dataclass(eq=False)
class OpenPoll:
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


class OpenPolls:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: set[OpenPoll] = set()
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
        for open_poll in self._open:
            open_poll.stop.set()

    def end_of(self, worker: str) -> None:
        """The worker has something to hear."""
        for open_poll in self._open:
            if open_poll.worker == worker:
                open_poll.stop.set()

    def forget(self, worker: str, tokens: Iterable[str]) -> None:
        """The worker itself ends these: no news to it."""
        gone = set(tokens)
        for open_poll in self._open:
            if open_poll.worker == worker:
                for token in gone & open_poll.refs.keys():
                    del open_poll.refs[token]

    async def follow(self, worker: str, call: str) -> None:
        """An earlier try at the same call is over; what it got is left for this one."""
        for open_poll in list(self._open):
            if open_poll.worker == worker and open_poll.call == call:
                open_poll.followed = True
                open_poll.leave()
                await open_poll.over.wait()

    @contextmanager
    def open(self, worker: str, call: str, refs: Sequence[Ref]) -> Iterator[OpenPoll]:
        open_poll = OpenPoll(worker, call, {ref.lease: ref for ref in refs})
        with ExitStack() as stack:
            for task in {ref.task for ref in refs}:
                stack.enter_context(self._engine.core.subscriptions.watching(task, self._news))
            self._open.add(open_poll)
            self._any.set()
            if self._dismissed:
                open_poll.stop.set()
            try:
                yield open_poll
            finally:
                self._open.discard(open_poll)
                open_poll.over.set()
                if not self._open:
                    self._any.clear()

    async def _run(self) -> None:
        clock = self._engine.core.clock
        while True:
            await self._any.wait()
            await clock.wait(self._news, LEASE_CHECK_MICROSECONDS)
            self._news.clear()
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - whatever it is, the work goes on
                log.warning("cannot look after the leases of workers, trying again: %r", error)
                await clock.sleep(LEASE_CHECK_MICROSECONDS)
            await asyncio.sleep(MIN_CHECK_PAUSE_SECONDS)

    async def _look(self) -> None:
        asked = [(open_poll, list(open_poll.refs.values())) for open_poll in self._open]
        pairs = [(ref.task, ref.lease) for _, refs in asked for ref in refs]
        if not pairs:
            return
        still = await self._engine.core.ledger.holding(pairs)
        for open_poll, refs in asked:
            if any(ref.lease in open_poll.refs and ref.lease not in still for ref in refs):
                open_poll.stop.set()
