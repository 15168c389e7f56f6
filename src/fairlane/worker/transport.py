"""The transport interface between a worker and the queue: over HTTP, or directly on the stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from fairlane.errors import FairlaneError
from fairlane.model.worker import WorkerState
from fairlane.worker_protocol.messages import News, Offer, PollAsk, Ref, Result, Verdict

RETRY_PAUSE_SECONDS = 0.5
"""Seconds until a call that raised ServerAway is repeated."""


class ServerAway(FairlaneError):
    """The queue did not answer, or asked to retry later: repeat the same call in a moment."""

    code = "away"


class UnknownWorker(FairlaneError):
    """The queue does not know this worker (any more): register again."""

    code = "unknown_worker"


class Registration(NamedTuple):
    """Times are seconds. A lease lasts `lease` seconds after the heartbeat that renewed it."""

    worker: str
    heartbeat: float
    lease: float


class Transport(Protocol):
    """Each call raises ServerAway if it may be repeated, and UnknownWorker if that needs a new
    registration."""

    async def register(self, offer: Offer) -> Registration: ...

    async def poll(self, ask: PollAsk) -> News: ...

    async def heartbeat(self, state: WorkerState, leases: Sequence[Ref]) -> News: ...

    async def report(self, results: Sequence[Result]) -> list[Verdict]: ...

    async def progress(self, ref: Ref, percent: float, text: str) -> None: ...

    async def output(self, ref: Ref, first: int, chunks: Sequence[Any]) -> None: ...

    async def close(self) -> None: ...
