"""Open long polls. A poll returns early when its worker loses a lease that the poll watches."""

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
    """One open long poll. `stop` ends it. `left` = the client has disconnected. `followed` = the
    client has retried the poll, and the retry returns its leases."""

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
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._watcher.run())

    async def stop(self) -> None:
        self.end_all()
        await end(self._task)

    @property
    def closing(self) -> bool:
        return self._closing

    def end_all(self) -> None:
        """Ends every open poll, and makes later polls return at once."""
        self._closing = True
        for open_poll in self._open:
            open_poll.stop.set()

    def end_of(self, worker: str) -> None:
        """Ends the worker's open polls, so that it gets a response now."""
        for open_poll in self._open:
            if open_poll.worker == worker:
                open_poll.stop.set()

    def forget(self, worker: str, tokens: Iterable[str]) -> None:
        """Stops watching leases that the worker itself reports."""
        gone = set(tokens)
        for open_poll in self._open:
            if open_poll.worker == worker:
                for token in gone & open_poll.refs.keys():
                    del open_poll.refs[token]

    async def follow(self, worker: str, call: str) -> None:
        """Ends an earlier try of the same poll, and leaves its leases to this retry."""
        for open_poll in list(self._open):
            if open_poll.worker == worker and open_poll.call == call:
                open_poll.followed = True
                open_poll.leave()
                await open_poll.over.wait()

    @contextmanager
    def open(self, worker: str, call: str, refs: Sequence[Ref]) -> Iterator[OpenPoll]:
        open_poll = OpenPoll(worker, call, {ref.lease: ref for ref in refs})
        self._open.add(open_poll)
        if self._closing:
            open_poll.stop.set()
        try:
            with self._watcher.watching(open_poll.refs, open_poll.stop.set):
                yield open_poll
        finally:
            self._open.discard(open_poll)
            open_poll.over.set()
