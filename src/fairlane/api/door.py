"""What every route shares: the engine, the settings, who may call, who listens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from fairlane.api.body import Bounds
from fairlane.api.crowd import Crowd
from fairlane.api.feed import Feed
from fairlane.api.identity import Identity
from fairlane.api.keyring import Keyring
from fairlane.api.rates import Rates
from fairlane.api.signed import Signer
from fairlane.api.turns import Turns
from fairlane.config.settings import Settings
from fairlane.engine import Engine
from fairlane.pull import Desk
from fairlane.pull.slots import Slots
from fairlane.telemetry.meter import EngineMeter
from fairlane.webhooks import Egress


class Budget:
    """Counting who is ahead takes time where many users wait: at most a fifth of it goes there."""

    def __init__(self, part: float = 0.2) -> None:
        self._rest = 1 / part - 1
        self._free_at = 0.0

    def allows(self, now: float) -> bool:
        return now >= self._free_at

    def spent(self, began: float, ended: float) -> None:
        if ended - began > FREE:
            self._free_at = ended + (ended - began) * self._rest


FREE = 0.001
"""Seconds that nobody misses."""


AROUND_RESULTS = 1 << 16
"""Bytes of a request beside the results in it."""


@dataclass(slots=True)
class Door:
    engine: Engine
    settings: Settings
    keyring: Keyring
    signer: Signer
    feed: Feed
    bounds: Bounds
    egress: Egress
    crowd: Crowd
    rates: Rates
    desk: Desk
    slots: Slots
    meter: EngineMeter
    turns: Turns = field(default_factory=Turns)
    counting: Budget = field(default_factory=Budget)
    draining: bool = False

    async def open(self) -> None:
        self.feed.start()
        self.desk.start()
        self.slots.start()

    async def close(self) -> None:
        self.draining = True
        await self.feed.stop()
        await self.desk.stop()
        await self.slots.stop()

    def drain(self) -> None:
        """Not ready from now on; who listens or polls is told to come back."""
        self.draining = True
        self.feed.dismiss()
        self.desk.dismiss()

    def bounds_of(self, path: str) -> Bounds:
        """What a step has made may be larger than a request."""
        if path.startswith("/internal/workers/") and path.endswith("/result"):
            return self.result_bounds
        return self.bounds

    @property
    def result_bounds(self) -> Bounds:
        most = self.engine.core.catalog.limits.result_bytes + AROUND_RESULTS
        return Bounds(max(most, self.bounds.bytes), self.bounds.seconds)


async def open_door(engine: Engine, settings: Settings) -> Door:
    core = engine.core
    secret = await core.ledger.keys.secret()
    return Door(
        engine=engine,
        settings=settings,
        keyring=Keyring(core.ledger.keys, core.clock, open_here=settings.server.loopback),
        signer=Signer(secret),
        feed=Feed(engine),
        bounds=Bounds(settings.server.max_body, settings.server.body_timeout),
        egress=Egress.of(settings),
        crowd=Crowd(settings.server.submits),
        rates=Rates(settings.server.key_rate),
        desk=Desk(engine),
        slots=Slots(engine),
        meter=EngineMeter(engine),
    )


@dataclass(frozen=True, slots=True)
class Call:
    """One request: who calls, and through which door."""

    door: Door
    identity: Identity

    @property
    def engine(self) -> Engine:
        return self.door.engine

    @property
    def tenant(self) -> str:
        return self.identity.tenant

    @property
    def actor(self) -> str:
        """Who an audited change is noted under."""
        return f"{self.identity.tenant}/{self.identity.key}"


async def _call(request: Request) -> Call:  # a plain one would be sent to a thread each time
    return Call(request.scope["door"], request.scope["identity"])


Here = Annotated[Call, Depends(_call)]
