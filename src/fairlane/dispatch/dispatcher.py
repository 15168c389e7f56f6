"""The dispatcher: a worker that claims steps and calls their services, over HTTP or through
Celery."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from fairlane.clock import seconds
from fairlane.dispatch.call import Call, ServiceCaller
from fairlane.dispatch.held_leases import HeldLeases
from fairlane.dispatch.progress_reports import ProgressReports
from fairlane.dispatch.service_call import HttpCaller, checked, open_session
from fairlane.dispatch.service_responses import Good, Meaning
from fairlane.engine import Engine
from fairlane.engine.settle import Done, Failed, GivenBack, Report
from fairlane.errors import BadRequest, NotReady, SetupError, is_store_error
from fairlane.ids import token
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.celery_bridge import CeleryBridge
from fairlane.model.endpoint import Endpoint
from fairlane.model.lease import Lease
from fairlane.model.service import Executor, Service
from fairlane.model.worker import Worker, WorkerState
from fairlane.units import SECOND

log = logging.getLogger("fairlane")

CLAIM_WAIT_SECONDS = 60.0
"""Seconds that a claim waits for work before it is repeated. Wake-ups end it earlier."""

RETRY_PAUSE_SECONDS = 0.2
"""Seconds before a failed store operation is retried."""

CANCEL_AGAIN, CANCEL_AT_LEAST_EVERY = SECOND, 8 * SECOND
"""Polling of a cut-off call until it has ended: the first interval, which doubles up to the
second."""

GIVE_BACK_SECONDS = 5.0
"""Seconds that a drained dispatcher takes at most to give back calls that did not finish."""


@dataclass
class ServiceLane:
    """One service: its worker, what makes its calls, and those that run."""

    worker: Worker
    caller: ServiceCaller
    running: set[asyncio.Task[None]] = field(default_factory=set)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Dispatcher:
    """Use it as `async with Dispatcher(engine, endpoints)`. It calls every service of executor
    `http` that has an endpoint, and every service of executor `celery` whose task `celery` names,
    with at most `capacity` calls of each (times its regions) at once, whatever its limit allows.
    With `tiers` it takes only jobs of these tiers. `name` must be unique among all
    running dispatchers."""

    def __init__(
        self,
        engine: Engine,
        endpoints: Mapping[str, Endpoint],
        *,
        celery: CeleryBridge | None = None,
        name: str = "",
        tiers: frozenset[str] | None = None,
        capacity: int = 100,
        lease: float = 15,
        grace: float = 30,
    ) -> None:
        self._engine, self._grace = engine, grace
        self.name = name or f"dispatcher-{token()[:8]}"
        self._endpoints, self._celery = endpoints, celery
        self._tiers, self._capacity, self._heartbeat = tiers, capacity, seconds(lease) // 3
        self._check()
        self._service_lanes: list[ServiceLane] = []
        self._held = HeldLeases(engine)
        self._progress = ProgressReports(engine)
        self._draining = self._over = False
        self._claiming: list[asyncio.Task[None]] = []
        self._cancelling: set[asyncio.Task[None]] = set()
        self._background: list[asyncio.Task[None]] = []
        self._connections = AsyncExitStack()

    async def __aenter__(self) -> Dispatcher:
        try:
            self._service_lanes = await self._make_lanes()
            for service_lane in self._service_lanes:
                await self._register(service_lane.worker)
        except BaseException:
            await self._connections.aclose()
            raise
        self._claiming = [
            asyncio.create_task(self._claim(service_lane)) for service_lane in self._service_lanes
        ]
        if self._service_lanes:
            forever = self._held.renew(self._workers), self._held.watch(), self._progress.run()
            self._background = [asyncio.create_task(each) for each in forever]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drain(0)

    async def _register(self, worker: Worker) -> None:
        while True:
            try:
                await self._engine.register(worker)
            except Exception as error:
                if not is_store_error(error):
                    raise
                log.warning("%s is not registered, trying again: %r", worker.id, error)
                await asyncio.sleep(RETRY_PAUSE_SECONDS)
            else:
                return

    def _workers(self) -> list[Worker]:
        return [service_lane.worker for service_lane in self._service_lanes]

    @property
    def running(self) -> int:
        """The number of running calls."""
        return sum(len(service_lane.running) for service_lane in self._service_lanes)

    async def drain(self, grace: float | None = None) -> None:
        """Graceful shutdown: stops claiming. Running calls may finish within `grace` seconds
        (default: the dispatcher's grace time). The rest are given back without costing an attempt.
        All calls have ended when it returns. A second call with less grace wins."""
        if self._over:
            return
        self._draining = True
        for service_lane in self._service_lanes:
            service_lane.worker = replace(service_lane.worker, state=WorkerState.DRAINING)
            service_lane.ended.set()
        await asyncio.gather(*(_told(self._engine.drain(each)) for each in self._workers()))
        await _ended(self._claiming, GIVE_BACK_SECONDS)
        calls = {task for service_lane in self._service_lanes for task in service_lane.running}
        await self._finish(calls, seconds(self._grace if grace is None else grace))
        await _ended(self._cancelling, GIVE_BACK_SECONDS)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        dead = [replace(worker, state=WorkerState.DEAD) for worker in self._workers()]
        await asyncio.gather(*(_told(self._engine.register(each)) for each in dead))
        await self._connections.aclose()
        self._over = True

    # --- claiming ----------------------------------------------------------------------------
    def _check(self) -> None:
        """Raises SetupError if a service cannot be called as configured."""
        for name, endpoint in self._endpoints.items():
            service = self._engine.catalog.service(name)
            if service.executor is not Executor.HTTP:
                raise SetupError(
                    f'service "{name}" has a url, but its executor is not http; remove one of them'
                )
            checked(name, endpoint, service.regions)
        for name in self._celery.tasks if self._celery else ():
            if self._engine.catalog.service(name).executor is not Executor.CELERY:
                raise SetupError(
                    f'service "{name}" has a Celery task, but its executor is not celery; '
                    "remove one of them"
                )

    async def _make_lanes(self) -> list[ServiceLane]:
        """One lane per service, so that a model loaded for one service does not count for another.
        Its worker reaches all regions of the service: the index chooses one for each job."""
        return [*await self._http_lanes(), *await self._celery_lanes()]

    async def _http_lanes(self) -> list[ServiceLane]:
        session = await self._connections.enter_async_context(open_session())
        return [
            ServiceLane(
                self._worker(self._engine.catalog.service(name)),
                HttpCaller(endpoint, session, self._engine.clock, self._engine.output),
            )
            for name, endpoint in self._endpoints.items()
        ]

    async def _celery_lanes(self) -> list[ServiceLane]:
        if self._celery is None or not self._celery.tasks:
            return []
        from fairlane.dispatch.celery_call import CeleryCaller
        from fairlane.dispatch.celery_fleet import CeleryFleet

        services = [self._engine.catalog.service(name) for name in self._celery.tasks]
        fleet = CeleryFleet(self._celery, services, self._heartbeat)
        await self._connections.enter_async_context(fleet)
        return [
            ServiceLane(
                self._worker(service),
                CeleryCaller(self._engine, fleet, self._celery, service.name),
            )
            for service in services
        ]

    def _worker(self, service: Service) -> Worker:
        return Worker(
            f"{self.name}/{service.name}",
            services=frozenset({service.name}),
            regions=tuple(service.regions),
            tiers=self._tiers,
            capabilities=service.capabilities,
            capacity=self._capacity * max(1, len(service.regions)),
            heartbeat=self._heartbeat,
            in_process=True,
            name=f"dispatcher on {socket.gethostname()}",
        )

    async def _claim(self, service_lane: ServiceLane) -> None:
        """Claims as many jobs as can start now, as soon as they can, for ever."""
        while not self._draining:
            free = service_lane.worker.capacity - len(service_lane.running)
            if free <= 0:
                service_lane.ended.clear()
                await service_lane.ended.wait()
                continue
            try:
                leases = await self._engine.claim(
                    service_lane.worker, free, wait=CLAIM_WAIT_SECONDS
                )
            except Exception as error:  # noqa: BLE001 - a store is away: it will be back
                log.warning("%s cannot claim, trying again: %r", service_lane.worker.id, error)
                await asyncio.sleep(RETRY_PAUSE_SECONDS)
                continue
            if self._engine.workers.is_draining(service_lane.worker.id):  # whichever process set it
                await asyncio.sleep(RETRY_PAUSE_SECONDS)
            for lease in leases:
                task = asyncio.create_task(self._run(service_lane, lease))
                service_lane.running.add(task)
                task.add_done_callback(service_lane.running.discard)
                task.add_done_callback(lambda _: service_lane.ended.set())

    # --- one call ----------------------------------------------------------------------------
    async def _run(self, service_lane: ServiceLane, lease: Lease) -> None:
        clock = self._engine.clock
        if clock.now() >= lease.lease_until:  # the process stood still: the lease may be gone
            await self._settle(GivenBack(lease))
            return
        call = service_lane.caller.call(lease)
        answer = asyncio.create_task(call.make())
        limit = asyncio.create_task(self._time_limit(call))
        try:
            with self._held.holding(call, answer), self._progress.following(call):
                await asyncio.wait((answer, limit), return_when=asyncio.FIRST_COMPLETED)
                if call.chunks:
                    await self._engine.flush_output()
                await self._settle(self._report(call, answer))
        except asyncio.CancelledError:  # the grace time is over
            lease = call.lease
            given_back = GivenBack(lease, closed=not call.begun)
            known = answer.done() or call.result is not None
            await self._settle(self._report(call, answer) if known else given_back)
        finally:
            over = _is_over(call, answer)
            limit.cancel()
            answer.cancel()
            await asyncio.gather(limit, answer, return_exceptions=True)
            if not over and call.can_be_cancelled:
                task = asyncio.create_task(self._cancel(call))
                self._cancelling.add(task)
                task.add_done_callback(self._cancelling.discard)

    async def _time_limit(self, call: Call) -> None:
        """Returns when the time of the call is over. Its deadline may move while it is made."""
        clock = self._engine.clock
        while (left := call.lease.deadline - clock.now()) > 0:
            await clock.sleep(left)

    async def _cancel(self, call: Call) -> None:
        """Repeats the cancel request until the service says that the call has ended, or its
        deadline has passed. Then its slot is freed. The lease is gone or settled, so nothing else
        is written."""
        clock, pause = self._engine.clock, CANCEL_AGAIN
        while clock.now() < call.lease.deadline:
            if await call.is_over():
                await self._settle(GivenBack(call.lease))
                await self._wake_claim(call.lease.service)
                return
            await clock.sleep(pause)
            pause = min(2 * pause, CANCEL_AT_LEAST_EVERY)

    def _report(self, call: Call, answer: asyncio.Task[Meaning]) -> Report | None:
        """The report to settle with. None if the lease is gone: no report is accepted, and the
        service may still run."""
        lease = call.lease
        if answer.cancelled():
            return None
        meaning = answer.result() if answer.done() else call.cut_off()
        if meaning is None:
            message = f"no answer after {(lease.deadline - lease.started_at) / 1e6:g} s"
            closed = not call.begun
            return Failed(lease, Fault.TIMEOUT, message, 0, closed, Outcome.TIMEOUT)
        if isinstance(meaning, Good):
            return Done(lease, meaning.data, meaning.metrics, meaning.over)
        after = seconds(meaning.retry_after)
        outcome = Outcome.TIMEOUT if meaning.fault is Fault.TIMEOUT else Outcome.FAILED
        return Failed(lease, meaning.fault, meaning.message, after, meaning.over, outcome)

    async def _settle(self, report: Report | None) -> None:
        """Settles until the ledger accepts the report or says that the lease is gone."""
        while report is not None:
            try:
                await self._engine.settle([report])
            except BadRequest as error:
                if not isinstance(report, Done):
                    raise
                message = f"{report.lease.service}: its answer cannot be stored: {error}"
                report = Failed(report.lease, Fault.SERVICE_ERROR, message, closed=report.closed)
            except SetupError:  # the engine has stopped: the lease will expire
                log.exception("%s is not settled", report.lease.job)
                return
            except Exception as error:  # noqa: BLE001 - a store is away: it will be back
                log.warning("%s is not settled, trying again: %r", report.lease.job, error)
                await asyncio.sleep(RETRY_PAUSE_SECONDS)
            else:
                if isinstance(report, Failed):
                    await self._wake_claim(report.lease.service)
                return

    async def _wake_claim(self, service: str) -> None:
        """Wakes the claim of this service: it does not know yet when a retry or probe is due."""
        for service_lane in self._service_lanes:
            if service in (service_lane.worker.services or ()):
                with suppress(NotReady):
                    await self._engine.workers.wake_claims(service_lane.worker)

    # --- ending ------------------------------------------------------------------------------
    async def _finish(self, calls: set[asyncio.Task[None]], grace: int) -> None:
        if calls and grace:
            done = asyncio.Event()
            waiting = asyncio.gather(*calls, return_exceptions=True)
            waiting.add_done_callback(lambda _: done.set())
            await self._engine.clock.wait(done, grace)
        for task in calls:
            task.cancel()
        await _ended(calls, GIVE_BACK_SECONDS)


def _is_over(call: Call, answer: asyncio.Task[Meaning]) -> bool:
    """Whether the service has certainly ended the call."""
    if not call.begun:
        return True
    if not answer.done() or answer.cancelled():
        return False
    return answer.result().over


async def _told(saying: Coroutine[Any, Any, object]) -> None:
    """Sends the last reports. A dispatcher that ends does not wait for unavailable stores."""
    with suppress(Exception):
        async with asyncio.timeout(GIVE_BACK_SECONDS):
            await saying


async def _ended(tasks: list[asyncio.Task[None]] | set[asyncio.Task[None]], within: float) -> None:
    """Gives the tasks this many seconds to end by themselves."""
    if not tasks:
        return
    _, late = await asyncio.wait(tasks, timeout=within)
    for task in late:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
