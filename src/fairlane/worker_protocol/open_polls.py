"""Open long polls: each returns early when a lease that its worker named is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from fairlane.background import end
from fairlane.engine import Engine
from fairlane.worker_protocol.messages import Ref


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
        self._watcher = engine.leases.watcher()
        self._open: set[OpenPoll] = set()
        self._dismissed = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._watcher.run())

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
        self._open.add(open_poll)
        if self._dismissed:
            open_poll.stop.set()
        try:
            with self._watcher.watching(open_poll.refs, open_poll.stop.set):
                yield open_poll
        finally:
            self._open.discard(open_poll)
            open_poll.over.set()
