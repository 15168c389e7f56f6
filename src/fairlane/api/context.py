"""The application context that every route shares: engine, settings, key cache, limiters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from fairlane.api.auth.key_cache import KeyCache
from fairlane.api.auth.roles import Identity
from fairlane.api.auth.sessions import Sessions
from fairlane.api.bulk_actions import BulkActions
from fairlane.api.celery_loads import CeleryLoadSource
from fairlane.api.dashboard_surroundings import DashboardSurroundings
from fairlane.api.event_listeners import EventStream
from fairlane.api.http.body_limits import Bounds
from fairlane.api.inference_connections import InferenceConnections
from fairlane.api.overload.limiter import AdmissionLimiter
from fairlane.api.rate_limit import RateLimiter
from fairlane.api.signing import Signer
from fairlane.config.settings import Settings
from fairlane.dashboard.sampler import Sampler
from fairlane.doctor import Doctor
from fairlane.engine import Engine
from fairlane.telemetry.engine_metrics import EngineMeter
from fairlane.webhooks import SsrfGuard
from fairlane.worker_protocol import WorkerService
from fairlane.worker_protocol.caller_slots import CallerSlots


class StepBudget:
    """A time budget for computing queue positions, which is slow when many users wait. At most
    `part` of the time is spent on it."""

    def __init__(self, part: float = 0.2) -> None:
        self._rest = 1 / part - 1
        self._free_at = 0.0

    def allows(self, now: float) -> bool:
        return now >= self._free_at

    def spent(self, began: float, ended: float) -> None:
        if ended - began > NEGLIGIBLE_SECONDS:
            self._free_at = ended + (ended - began) * self._rest


NEGLIGIBLE_SECONDS = 0.001
"""Shorter computations are not counted."""


RESULT_ENVELOPE_BYTES = 1 << 16
"""Bytes of a result request in addition to the results in it."""


@dataclass(slots=True)
class AppContext:
    engine: Engine
    settings: Settings
    key_cache: KeyCache
    signer: Signer
    event_stream: EventStream
    inferences: InferenceConnections
    bounds: Bounds
    egress: SsrfGuard
    limiter: AdmissionLimiter
    rate_limiter: RateLimiter
    worker_service: WorkerService
    slots: CallerSlots
    instrumentation: EngineMeter
    celery: CeleryLoadSource
    doctor: Doctor
    sampler: Sampler
    sessions: Sessions
    bulk_actions: BulkActions
    counting: StepBudget = field(default_factory=StepBudget)
    draining: bool = False

    async def open(self) -> None:
        self.event_stream.start()
        self.worker_service.start()
        self.slots.start()
        self.sampler.start()

    async def close(self) -> None:
        self.draining = True
        await self.event_stream.stop()
        await self.inferences.stop()
        await self.worker_service.stop()
        await self.slots.stop()
        await self.sampler.stop()
        await self.doctor.stop()
        await self.bulk_actions.stop()
        self.celery.close()

    def drain(self) -> None:
        """Begins the shutdown: not ready, and event streams and long polls end. Their clients
        connect again elsewhere."""
        self.draining = True
        self.event_stream.end_streams()
        self.inferences.end_all()
        self.worker_service.end_polls()
        self.sampler.wake()

    def bounds_of(self, path: str) -> Bounds:
        """Returns the body limits of a path. Results may be larger than other requests."""
        if path.startswith("/internal/workers/") and path.endswith("/result"):
            return self.result_bounds
        return self.bounds

    @property
    def result_bounds(self) -> Bounds:
        most = self.engine.catalog.limits.result_bytes + RESULT_ENVELOPE_BYTES
        return Bounds(max(most, self.bounds.bytes), self.bounds.seconds)


async def open_context(engine: Engine, settings: Settings) -> AppContext:
    signer = Signer(await engine.api_keys.secret())
    celery = CeleryLoadSource(settings.celery)
    doctor = Doctor(engine, settings, celery=celery.counts)
    around = DashboardSurroundings(celery, doctor, settings.server.simulated_speed)
    return AppContext(
        engine=engine,
        settings=settings,
        key_cache=KeyCache(engine.api_keys, engine.clock, open_here=settings.server.loopback),
        signer=signer,
        event_stream=EventStream(engine),
        inferences=InferenceConnections(engine),
        bounds=Bounds(settings.server.max_body, settings.server.body_timeout),
        egress=SsrfGuard.of(settings),
        limiter=AdmissionLimiter(settings.server.submits),
        rate_limiter=RateLimiter(settings.server.key_rate),
        worker_service=WorkerService(engine),
        slots=CallerSlots(engine),
        instrumentation=EngineMeter(engine),
        celery=celery,
        doctor=doctor,
        sampler=Sampler(engine, around.read),
        sessions=Sessions(engine.api_keys, signer),
        bulk_actions=BulkActions(engine),
    )


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The context of one request: the application and the caller's identity."""

    app_context: AppContext
    identity: Identity

    @property
    def engine(self) -> Engine:
        return self.app_context.engine

    @property
    def tenant(self) -> str:
        return self.identity.tenant

    @property
    def actor(self) -> str:
        """The actor that the audit log records."""
        return f"{self.identity.tenant}/{self.identity.key}"


async def _call(
    request: Request,
) -> RequestContext:  # FastAPI runs a dependency that is not async in a thread
    return RequestContext(request.scope["app_context"], request.scope["identity"])


Here = Annotated[RequestContext, Depends(_call)]
