"""One call of a service that is a Celery task: sent to the broker, followed in the result backend.
See decision 24, docs/decisions/0024-celery-bridge.md."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any

from fairlane.dispatch.celery_fleet import (
    LOOK_SHARE,
    MAX_LOOK_SECONDS,
    MIN_LOOK_SECONDS,
    Answers,
    CeleryFleet,
    Message,
)
from fairlane.dispatch.celery_states import (
    Retrying,
    Revoked,
    Started,
    is_final,
    is_revoked,
    understand_state,
)
from fairlane.dispatch.service_call import body_of
from fairlane.dispatch.service_responses import Bad, Meaning
from fairlane.dispatch.streamed_response import Told
from fairlane.engine import Engine
from fairlane.ledger.messages import Stale
from fairlane.model.attempt import Fault
from fairlane.model.celery_bridge import CeleryBridge
from fairlane.model.lease import Lease
from fairlane.trace_context import trace_id, traceparent
from fairlane.units import SECOND

log = logging.getLogger("fairlane")

LOST_AFTER_MISSES, LOST_AFTER_SILENCE = 3, 12
"""Broadcasts without a sign of a task before it counts as lost: if other workers answer, and if
none does, because then the broker may have been away."""

START_UNMOVED_MICROSECONDS = SECOND // 10
"""A task that starts this soon counts from its claim: moving the start costs a write."""


class CeleryCaller:
    """Makes the calls of one service of a fleet."""

    def __init__(
        self, engine: Engine, fleet: CeleryFleet, bridge: CeleryBridge, service: str
    ) -> None:
        self.engine, self.fleet = engine, fleet
        self.task, self.start_timeout = bridge.tasks[service], round(bridge.start_timeout * SECOND)

    def call(self, lease: Lease) -> CeleryCall:
        return CeleryCall(lease, self)


class CeleryCall:
    """A lease is one task id, so a message that Celery delivers again is the same attempt. `nodes`
    are the workers that have started the task: more than one after a redelivery."""

    result: Meaning | None = None
    chunks = 0
    can_be_cancelled = True

    def __init__(self, lease: Lease, caller: CeleryCaller) -> None:
        self.lease, self.lease_until = lease, lease.lease_until
        self.id = task_id(lease.job, lease.fence)
        self.begun = False
        self.told: Told | None = None
        self.nodes: set[str] = set()
        self.look_at = math.inf
        self._since = 0.0
        self._engine, self._fleet = caller.engine, caller.fleet
        self._task, self._start_timeout = caller.task, caller.start_timeout
        self._expires_at = 0
        self._sending = self._abandoned = self._was_read = False
        self._started = self._told_start = self._found_active = self._retrying = False
        self._misses = 0
        self._seen: Meaning | Revoked | None = None
        self._news = asyncio.Event()

    async def make(self) -> Meaning:
        try:
            with self._fleet.following(self):
                return await self._send() or await self._follow()
        except asyncio.CancelledError:
            self._abandoned = True
            raise
        except Exception:
            log.exception("calling %s for job %s", self.lease.service, self.lease.job)
            message = f"{self.lease.service} could not be called"
            return Bad(Fault.TRANSIENT, message, over=not self.begun)

    def cut_off(self) -> None:
        return None

    async def is_over(self) -> bool:
        try:
            await self._fleet.revoke(self.id)
            stored = await self._fleet.stored(self.id)
            answers = await self._fleet.ask([self.id])
        except Exception as error:  # noqa: BLE001 - the broker or the backend is away
            log.warning("%s: cancelling %s: %r", self.lease.service, self.lease.job, error)
            return False
        if any(self.id in held for held in answers.values()):
            return False
        if is_revoked(stored):  # maybe by a worker that got a copy
            return self.nodes <= answers.keys()
        if is_final(stored) and len(self.nodes) < 2:
            return True
        if self._started:
            return bool(self.nodes) and self.nodes <= answers.keys()
        return self._engine.clock.now() > self._expires_at

    # --- sending -----------------------------------------------------------------------------
    async def _send(self) -> Bad | None:
        """Returns None once the task is sent. Until it certainly is not, it counts as begun."""
        service, clock = self.lease.service, self._engine.clock
        if self.lease.fence > 1:
            await self._revoke_predecessor()
        self.begun = True
        self._expires_at = clock.now() + self._start_timeout
        try:
            sent = await self._fleet.publish(self._message(), self._may_send)
        except Exception as error:  # noqa: BLE001 - the clients of each broker raise their own
            self.begun = self._sending
            log.warning("%s: job %s was not sent: %r", service, self.lease.job, error)
            message = f"{service}: no connection to the broker ({type(error).__name__})"
            return Bad(Fault.UNAVAILABLE, message, over=not self.begun)
        if not sent:
            self.begun = False
            message = f"{service}: its lease ended before the task was sent"
            return Bad(Fault.UNAVAILABLE, message)
        self._since = asyncio.get_running_loop().time()
        self._look_again()
        self._fleet.look_soon()
        return None

    def _may_send(self) -> bool:
        """The broker has answered. Called in the thread that sends."""
        self._sending = not self._abandoned and self._engine.clock.now() < self.lease_until
        return self._sending

    async def _revoke_predecessor(self) -> None:
        """The attempt before this one may have been lost with its dispatcher, and its task may
        still wait or run."""
        try:
            await self._fleet.revoke(task_id(self.lease.job, self.lease.fence - 1))
        except Exception as error:  # noqa: BLE001 - then the broker is away, and sending will tell
            log.debug("%s: the last attempt was not revoked: %r", self.lease.job, error)

    def _message(self) -> Message:
        lease, given = self.lease, self.lease.input
        about: dict[str, Any] = {**body_of(lease)["meta"], "context": lease.context}
        if parent := traceparent(trace_id(lease.job, lease.trace)):
            about["traceparent"] = parent
        positional = [] if given is None else given if isinstance(given, list) else [given]
        return Message(
            self.id,
            self._task.name,
            self._task.queue,
            [] if isinstance(given, dict) else positional,
            given if isinstance(given, dict) else {},
            {"fairlane": about},
            self._start_timeout / SECOND,
            (lease.deadline - lease.started_at) / SECOND,
        )

    # --- following ---------------------------------------------------------------------------
    async def _follow(self) -> Meaning:
        """Returns when the task has ended, is lost, or was not started in time. Until it starts,
        its time limit moves along."""
        clock, start_written = self._engine.clock, False
        while True:
            if self._seen is not None and (ended := await self._concluded(self._seen)):
                return ended
            if start_written:
                await self._news.wait()
            elif self._started:
                start_written = await self._move_start()
                if not start_written:
                    await clock.wait(self._news, SECOND)
            else:
                left = self._expires_at - clock.now()
                if left <= 0:
                    return self._not_started()
                limit = self.lease.deadline - self.lease.started_at
                period = min(self._fleet.heartbeat, limit // 3, left)
                if not await clock.wait(self._news, period):
                    await self._move_start()
            self._news.clear()

    async def _move_start(self) -> bool:
        """Counts the time from now on. Returns whether the ledger has answered."""
        now = self._engine.clock.now()
        if now - self.lease.started_at < START_UNMOVED_MICROSECONDS:
            return True
        try:
            moved = await self._engine.leases.move_start(self.lease, now)
        except Exception as error:  # noqa: BLE001 - a store is away: it will be back
            log.warning("the start of %s is not written: %r", self.lease.job, error)
            return False
        if not isinstance(moved, Stale):
            self.lease = moved
        return True

    def _not_started(self) -> Bad:
        seconds = self._start_timeout / SECOND
        message = f"no Celery worker has started it within {seconds:g} s"
        advice = f"check that workers consume the queue {self._task.queue}"
        return Bad(Fault.UNAVAILABLE, f"{self.lease.service}: {message}; {advice}", over=False)

    async def _concluded(self, seen: Meaning | Revoked) -> Meaning | None:
        """What this state means for the attempt. None if the task may go on all the same: a worker
        that gets an expired copy stores REVOKED while the first one runs, which may be silent."""
        if not isinstance(seen, Revoked):
            return seen._replace(over=seen.over and len(self.nodes) < 2)
        if not await self._is_dropped():
            if self._seen is seen:  # else the task is known to be lost
                self._seen = None
            return None
        expired = self._engine.clock.now() >= self._expires_at
        if expired and not self._started:
            return self._not_started()._replace(over=True)
        what = "its task was revoked in Celery"
        if expired and self._retrying:
            what = "Celery dropped its own retry, which came after start_timeout"
        return Bad(Fault.TRANSIENT, f"{self.lease.service}: {what}")

    async def _is_dropped(self) -> bool:
        """Whether all workers that have started it say that they do not hold it, and it has left no
        result meanwhile."""
        try:
            answers = await self._fleet.ask([self.id])
            stored = await self._fleet.stored(self.id)
        except Exception:  # noqa: BLE001 - the broker or the backend is away
            return False
        held = any(self.id in each for each in answers.values())
        return not held and self.nodes <= answers.keys() and is_revoked(stored)

    # --- what the fleet tells ----------------------------------------------------------------
    def read(self, stored: bytes | None) -> None:
        state, self._was_read = None, True
        if stored is not None:
            state = understand_state(self.lease.service, self._task, stored)
        match state:
            case None:
                pass
            case Started(node):
                self._told_start, self._retrying = True, False
                self._start(node)
            case Told():
                self._told_start, self._retrying, self.told = True, False, state
                self._start("")
            case Retrying():
                self._told_start = self._retrying = True
                self._start("")
            case _:
                self._seen = state
                self._news.set()
        self._look_again()

    def heard(self, answers: Answers) -> None:
        if self._seen is not None and not isinstance(self._seen, Revoked):
            return
        was_read, self._was_read = self._was_read, False
        active = [node for node, held in answers.items() if held.get(self.id) == "active"]
        if active and self._found_active and was_read and not self._told_start:
            self._fleet.warn_of_untracked_start(self.lease.service)
        self._found_active = bool(active)
        for node in active:
            self._start(node)
        held = any(self.id in each for each in answers.values())
        if held or self._retrying or not self._started:
            self._misses = 0
            return
        audible = all(map(self._fleet.can_be_heard, self.nodes))
        if not (self.nodes and audible and was_read):  # a result may be stored and not yet read
            return
        self._misses += 1
        if self._misses >= (LOST_AFTER_MISSES if answers else LOST_AFTER_SILENCE):
            names = ", ".join(sorted(self.nodes))
            message = f"{self.lease.service}: lost by its Celery worker {names}, without a result"
            gone = self.nodes <= answers.keys()
            self._seen = Bad(Fault.TRANSIENT, message, over=gone)
            self._news.set()

    def _start(self, node: str) -> None:
        if self.nodes and node and node not in self.nodes:
            names = ", ".join(sorted({*self.nodes, node}))
            advice = "raise visibility_timeout above the longest task"
            what = "job %s was delivered again by Celery and counts once (%s): %s"
            log.warning(what, self.lease.job, names, advice)
        if node:
            self._fleet.meet([node])
            self.nodes.add(node)
        if not self._started:
            self._started, self._since = True, asyncio.get_running_loop().time()
            self._news.set()

    def _look_again(self) -> None:
        now = asyncio.get_running_loop().time()
        pause = (now - self._since) / LOOK_SHARE
        self.look_at = now + min(max(pause, MIN_LOOK_SECONDS), MAX_LOOK_SECONDS)


def task_id(job: str, fence: int) -> str:
    """The id of the Celery task of one attempt."""
    return f"{job}-{fence}"
