"""Places in the least loaded Celery queues, reserved for the next publishes of one process: one for
a publish that comes alone, several ahead for a bulk."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable

from fairlane.celery.leases import LeaseStore, lease_of, new_nonce
from fairlane.errors import StoreAway

BULK_AFTER = 100
"""Publishes of a process in a row, without a pause, after which it reserves places ahead."""

PAUSE_SECONDS = 0.1
"""A longer time without a publish ends a bulk; places that are left are given back."""

LOCK_SECONDS = 2.0
"""A little longer than a request to Redis can take."""


class ReservedPlaces:
    """The threads of a process share the places and take them in the order of their reservation, so
    that every choice is as good as one that was made alone."""

    def __init__(self, leases: LeaseStore) -> None:
        options = leases.options
        self._leases = leases
        # with weights a place has the weight of its task
        self._ahead = 1 if options.weights else options.reserve_ahead
        self._lock = threading.Lock()
        self._places: deque[str] = deque()
        self._unused: list[str] = []
        self._in_a_row = 0
        self._last_taken = 0.0
        self._returner: threading.Thread | None = None
        self._closed = threading.Event()

    def take(self, task: str, failed: Iterable[str] = ()) -> str:
        """A lease for the next publish. `failed` are leases of publishes that failed: they are
        given back with the next request. Raises StoreAway."""
        if not self._lock.acquire(timeout=LOCK_SECONDS):
            raise StoreAway("another publish of this process still waits for the lease store")
        try:
            self._unused += failed
            if self._is_pause():
                self._in_a_row = 0
                self._clear_places()
            self._in_a_row += 1
            if not self._places:
                self._reserve(task)
            self._last_taken = time.monotonic()
            return self._places.popleft()
        finally:
            self._lock.release()

    def close(self) -> None:
        """Gives back what is left. The places can be used again."""
        returner = self._returner
        if returner is not None:
            self._closed.set()
            returner.join()
            self._closed.clear()

    def _reserve(self, task: str) -> None:
        is_bulk = self._in_a_row > BULK_AFTER and self._ahead > 1 and self._has_returner()
        nonces = [new_nonce() for _ in range(self._ahead if is_bulk else 1)]
        unused, self._unused = self._unused, []
        self._places.extend(map(lease_of, self._leases.reserve(task, nonces, unused), nonces))

    def _is_pause(self) -> bool:
        return time.monotonic() - self._last_taken > PAUSE_SECONDS

    def _clear_places(self) -> None:
        self._unused += self._places
        self._places.clear()

    def _has_returner(self) -> bool:
        """Whether a thread watches for the end of the bulk. It is no daemon: a program that ends
        after a bulk waits for it."""
        if self._returner is None:
            self._returner = threading.Thread(
                target=self._return_unused, name="fairlane-places", daemon=False
            )
            try:
                self._returner.start()
            except RuntimeError:  # the interpreter shuts down
                self._returner = None
        return self._returner is not None

    def _return_unused(self) -> None:
        while (unused := self._left_after_bulk(self._closed.wait(PAUSE_SECONDS))) is None:
            pass
        try:
            self._leases.give_back(unused)
        except StoreAway:
            return  # the reconciler finds them

    def _left_after_bulk(self, closed: bool) -> list[str] | None:  # noqa: FBT001 - an answer
        """None while the bulk goes on."""
        with self._lock:
            if not closed and not self._is_pause():
                return None
            self._clear_places()
            unused, self._unused, self._returner = self._unused, [], None
            return unused
