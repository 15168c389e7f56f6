"""The direct transport: a worker inside the cluster calls the engine of its own process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from fairlane.engine import Engine
from fairlane.errors import FairlaneError, NotFound, StaleLease
from fairlane.model.worker import Worker, WorkerState
from fairlane.worker.transport import Registration, ServerAway, UnknownWorker
from fairlane.worker_protocol import WorkerService
from fairlane.worker_protocol.messages import News, Offer, PollAsk, Ref, Result, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN_KEY = "local"


class DirectTransport:
    """The caller owns the engine: it starts before and stops after the worker."""

    def __init__(self, engine: Engine) -> None:
        self._worker_service = WorkerService(engine)
        self._worker_service.start()
        self._worker: Worker

    async def register(self, offer: Offer) -> Registration:
        with _understood():
            self._worker = await self._worker_service.register(offer, OWN_KEY)
        worker = self._worker
        return Registration(worker.id, worker.heartbeat / 1_000_000, worker.lease / 1_000_000)

    async def poll(self, ask: PollAsk) -> News:
        with _understood():
            worker = await self._worker_service.worker(self._worker.id, OWN_KEY)
            return await self._worker_service.poll(
                worker, ask._replace(confirms=False)
            )  # one process

    async def heartbeat(self, state: WorkerState, leases: Sequence[Ref]) -> News:
        with _understood():
            return await self._worker_service.heartbeat(self._worker, state, leases)

    async def report(self, results: Sequence[Result]) -> list[Verdict]:
        with _understood():
            return await self._worker_service.report(self._worker, results)

    async def progress(self, ref: Ref, percent: float, text: str) -> None:
        with _understood(), suppress(StaleLease):
            await self._worker_service.progress(self._worker, ref, percent, text)

    async def output(self, ref: Ref, first: int, chunks: Sequence[Any]) -> None:
        with _understood():
            await self._worker_service.output(self._worker, ref, first, chunks)

    async def close(self) -> None:
        await self._worker_service.stop()


@contextmanager
def _understood() -> Iterator[None]:
    """Turns errors of an unavailable store into ServerAway, which is retried."""
    try:
        yield
    except NotFound as error:
        raise UnknownWorker(str(error)) from error
    except FairlaneError:
        raise
    except Exception as error:
        raise ServerAway(repr(error)) from error
