"""Slot pools (concurrency and rate limits): which numbered slots are taken, by which token, and
which models the slots of called services ran last."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Container, Iterator, Sequence
from typing import NamedTuple

from fairlane.model.lease import Slot
from fairlane.model.service import (
    Pool,
    is_rate_pool,
    is_user_pool,
    rate_pool,
    service_of_pool,
    user_of_pool,
    user_pool,
)
from fairlane.model.worker import Loaded
from fairlane.policy.affinity import slot_preference

COLD = Loaded()


class SlotPool:
    """The slots of one pool. After the limit was lowered, held slots above it still count. `models`
    are those that the slots of a called service ran last, by slot number."""

    __slots__ = ("_free", "_temporary", "held", "limit", "models", "name", "window")

    def __init__(self, pool: Pool) -> None:
        self.name, self.limit, self.window = pool.name, pool.limit, pool.window
        self.held: dict[int, str] = {}
        self._free = list(range(1, pool.limit + 1))
        self._temporary: list[tuple[int, int, str]] = []
        self.models: dict[int, Loaded] = {}

    @property
    def spare(self) -> int:
        return self.limit - len(self.held)

    def take(self, token: str, now: int, n: int = 0) -> Slot:
        """Take this free slot, or the lowest one (0). Requires a spare slot."""
        if n:
            self._free = [each for each in self._free if each != n]
            heapq.heapify(self._free)
        else:
            while (n := heapq.heappop(self._free)) in self.held or n > self.limit:
                pass
        until = now + self.window if self.window else 0
        self.hold(Slot(self.name, n, until), token)
        return Slot(self.name, n, until)

    def slot_for(self, model: str) -> int:
        """The free slot that a job with this model takes. Requires a spare slot."""
        free = (n for n in range(1, self.limit + 1) if n not in self.held)
        return min(free, key=lambda n: (*slot_preference(self.loaded(n), model), n))

    def loaded(self, n: int) -> Loaded:
        return self.models.get(n, COLD)

    def loaded_for(self, model: str) -> Loaded:
        """What is loaded in the slot for a job with this model. A job without one needs nothing."""
        return self.loaded(self.slot_for(model)) if model else COLD

    def hold(self, slot: Slot, token: str) -> None:
        self.held[slot.n] = token
        if slot.until:
            heapq.heappush(self._temporary, (slot.until, slot.n, token))

    def give(self, n: int, token: str) -> bool:
        """Free the number if this token holds it."""
        if self.held.get(n) != token:
            return False
        del self.held[n]
        if n <= self.limit:
            heapq.heappush(self._free, n)
        return True

    def expire(self, now: int) -> None:
        """Free the expired slots: those of rate limits, and those kept for calls that were cut
        off."""
        while self._temporary and self._temporary[0][0] <= now:
            _, n, token = heapq.heappop(self._temporary)
            self.give(n, token)

    def expiries(self) -> dict[tuple[int, str], int]:
        """The expiry time of each (slot number, token) that expires."""
        return {(n, token): until for until, n, token in self._temporary}

    def kept_until(self) -> list[int]:
        """The expiry times of all slots that expire, earliest first."""
        return sorted(until for until, n, token in self._temporary if self.held.get(n) == token)

    def next_expiry(self, now: int) -> int | None:
        """The next expiry time after `now`, or None."""
        self.expire(now)
        return self._temporary[0][0] if self._temporary else None

    def resize(self, limit: int) -> None:
        self.limit = limit
        self._free = [n for n in range(1, limit + 1) if n not in self.held]


class SlotChoice(NamedTuple):
    """The slot that a job takes in one of its pools. None: the lowest free one in all of them."""

    pool: SlotPool | None
    n: int


NO_CHOICE = SlotChoice(None, 0)


class Pools:
    """All pools by name, and the slots of each token. Pools of users and of task types are
    temporary: they are created and deleted with their jobs."""

    def __init__(self) -> None:
        self._pools: dict[str, SlotPool] = {}
        self._services: Collection[str] = ()
        self._by_token: dict[str, list[Slot]] = {}

    def __iter__(self) -> Iterator[SlotPool]:
        return iter(self._pools.values())

    def get(self, name: str) -> SlotPool | None:
        return self._pools.get(name)

    def configure(self, wanted: dict[str, Pool], services: Collection[str]) -> None:
        """Set the configured pools and services. Services not named here are task types."""
        self._services = services
        for name in [each.name for each in self if not self._is_temporary(each.name)]:
            if name not in wanted:
                del self._pools[name]
        for pool in wanted.values():
            known = self._pools.get(pool.name)
            if known is None or known.window != pool.window:
                self._pools[pool.name] = SlotPool(pool)
            elif known.limit != pool.limit:
                known.resize(pool.limit)

    def of_user(self, user: str, cap: int) -> SlotPool:
        """The pool behind `max_running_per_user`."""
        return self.made(Pool(user_pool(user), cap))

    def made(self, wanted: Pool) -> SlotPool:
        """The temporary pool of this name, created or changed to this limit."""
        pool = self._pools.get(wanted.name)
        if pool is None:
            pool = self._pools[wanted.name] = SlotPool(wanted)
        pool.window = wanted.window
        if pool.limit != wanted.limit:
            pool.resize(wanted.limit)
        return pool

    def forgets(self, service: str, now: int) -> bool:
        """Delete the temporary pools of this service. Returns False if one still has held slots."""
        for name in (f"svc:{service}", rate_pool(f"svc:{service}")):
            pool = self._pools.get(name)
            if pool is not None and self._is_temporary(name):
                pool.expire(now)
                if pool.held:
                    return False
                del self._pools[name]
        return True

    def _is_temporary(self, name: str) -> bool:
        if is_user_pool(name):
            return True
        service = service_of_pool(name)
        return service is not None and service not in self._services

    def take(
        self, pools: list[SlotPool], token: str, now: int, chosen: SlotChoice = NO_CHOICE
    ) -> tuple[Slot, ...]:
        """Take a slot in each of these pools: the chosen one, or the lowest free one."""
        if chosen.pool is None:
            slots = tuple([pool.take(token, now) for pool in pools])
        else:
            numbers = [chosen.n if pool is chosen.pool else 0 for pool in pools]
            taken = zip(pools, numbers, strict=True)
            slots = tuple([pool.take(token, now, n) for pool, n in taken])
        if slots:
            self._by_token[token] = list(slots)
        return slots

    def hold(self, slot: Slot, token: str) -> None:
        """Record a slot that this token holds according to the ledger."""
        pool = self._pools.get(slot.pool)
        if pool is None:
            if not self._is_temporary(slot.pool):
                return
            pool = self._pools[slot.pool] = SlotPool(Pool(slot.pool, slot.n))
        pool.hold(slot, token)
        self._by_token.setdefault(token, []).append(slot)

    def release(
        self, token: str, *, kept: tuple[Slot, ...] = (), refused: bool = False
    ) -> list[str]:
        """Free the slots of the token, except the kept ones, which expire. Rate slots also stay
        until they expire, unless the proposal was refused. Returns the users that may start one
        more job."""
        slots = self._by_token.pop(token, None)
        if slots is None:
            return []
        keep = {(slot.pool, slot.n): slot for slot in kept}
        stays, users = [], []
        for slot in slots:
            kept_slot = keep.get((slot.pool, slot.n))
            if kept_slot is not None:
                stays.append(kept_slot)
                if kept_slot.until and slot.pool in self._pools and not slot.until:
                    self._pools[slot.pool].hold(kept_slot, token)
            elif refused or not is_rate_pool(slot.pool):
                self._give(slot, token)
                if is_user_pool(slot.pool):
                    users.append(user_of_pool(slot.pool))
        if stays:
            self._by_token[token] = stays
        return users

    def forget_models(self, slots: Sequence[Slot]) -> None:
        """The process behind these slots is probably a new one: it has no model."""
        for slot in slots:
            pool = self._pools.get(slot.pool)
            if pool is not None:
                pool.models.pop(slot.n, None)

    def sync(
        self, name: str, rows: Sequence[tuple[Slot, str]], proposed: Container[str], now: int
    ) -> int:
        """Correct one pool by the ledger's rows; slots of proposals are not changed. Returns the
        number of corrected slots."""
        pool = self._pools.get(name)
        if pool is None:
            if not rows or not self._is_temporary(name):
                return 0
            pool = self.made(Pool(name, 0))
        pool.expire(now)
        truth = {slot.n: (slot, token) for slot, token in rows}
        wrong = [
            (n, token) for n, token in pool.held.items() if n not in truth and token not in proposed
        ]
        for n, token in wrong:
            self.forget(Slot(name, n), token)
        missing = [row for row in truth.values() if pool.held.get(row[0].n) != row[1]]
        for slot, token in missing:
            self.hold(slot, token)
        return len(wrong) + len(missing)

    def forget(self, slot: Slot, token: str) -> None:
        """Free one slot that has no row in the ledger."""
        self._give(slot, token)
        left = [each for each in self._by_token.get(token, ()) if each[:2] != slot[:2]]
        if left:
            self._by_token[token] = left
        else:
            self._by_token.pop(token, None)

    def _give(self, slot: Slot, token: str) -> None:
        pool = self._pools.get(slot.pool)
        if pool is None or not pool.give(slot.n, token):
            return
        if not pool.held and self._is_temporary(slot.pool):
            del self._pools[slot.pool]
