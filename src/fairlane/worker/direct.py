"""A worker inside the cluster: at the desk of an engine in its own process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from fairlane.engine import Engine
from fairlane.errors import FairlaneError, NotFound, StaleLease
from fairlane.model.worker import Worker, WorkerState
from fairlane.pull import Desk
from fairlane.pull.shapes import Ask, News, Offer, Ref, Result, Verdict
from fairlane.worker.line import Away, Registered, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN_KEY = "local"


class DirectLine:
    """The engine is the caller's: it is started before and stopped after."""

    def __init__(self, engine: Engine) -> None:
        self._desk = Desk(engine)
        self._desk.start()
        self._worker: Worker

    async def register(self, offer: Offer) -> Registered:
        with _understood():
            self._worker = await self._desk.register(offer, OWN_KEY)
        worker = self._worker
        return Registered(worker.id, worker.heartbeat / 1_000_000, worker.lease / 1_000_000)

    async def poll(self, ask: Ask) -> News:
        with _understood():
            worker = await self._desk.worker(self._worker.id, OWN_KEY)
            return await self._desk.poll(worker, ask._replace(confirms=False))  # one process

    async def heartbeat(self, state: WorkerState, leases: Sequence[Ref]) -> News:
        with _understood():
            return await self._desk.heartbeat(self._worker, state, leases)

    async def report(self, results: Sequence[Result]) -> list[Verdict]:
        with _understood():
            return await self._desk.report(self._worker, results)

    async def progress(self, ref: Ref, percent: float, text: str) -> None:
        with _understood(), suppress(StaleLease):
            await self._desk.progress(self._worker, ref, percent, text)

    async def close(self) -> None:
        await self._desk.stop()


@contextmanager
def _understood() -> Iterator[None]:
    """A store that is away will be back."""
    try:
        yield
    except NotFound as error:
        raise Unknown(str(error)) from error
    except FairlaneError:
        raise
    except Exception as error:
        raise Away(repr(error)) from error
