"""The API key cache: a cached key is used for two seconds, so a revoked key stops working within
two seconds."""

from __future__ import annotations

import time

from fairlane.api.auth.key_format import opens, split
from fairlane.api.auth.roles import DEVELOPER, Identity, identity_of
from fairlane.api.auth.unknown_keys import UnknownKeys
from fairlane.clock import Clock
from fairlane.ledger.api_keys import ApiKeys
from fairlane.model.key import Key

KEY_CACHE_SECONDS = 2.0
MAX_CACHED_KEYS = 10_000


class KeyCache:
    """`open_here`: the server listens only on the loopback interface. Callers then need no key
    until the first key is created (development mode)."""

    def __init__(self, book: ApiKeys, clock: Clock, *, open_here: bool) -> None:
        self._book, self._clock, self._open_here = book, clock, open_here
        self._known: dict[str, tuple[float, Key | None]] = {}
        self._unknown_keys = UnknownKeys(book)
        self._looked_for_any = -KEY_CACHE_SECONDS

    async def identify(self, credential: str | None) -> Identity | None:
        """Returns the identity of a credential, or None if it is not valid. No credential is valid
        only in development mode."""
        if credential is None:
            return DEVELOPER if await self.development() else None
        found = split(credential)
        if found is None:
            return None
        key = await self._find(found[0])
        if not opens(key, found[1]) or key is None or not key.holds(self._clock.now()):
            return None
        return identity_of(key)

    async def still(self, identity: Identity) -> bool:
        """Returns whether an identity that was checked before is still valid."""
        if identity.key == DEVELOPER.key:
            return await self.development()
        key = await self._find(identity.key)
        return key is not None and key.holds(self._clock.now())

    async def named(self, key: str, job: str | None = None) -> Identity | None:
        """Returns the identity of a session, or of a ticket for a job, while the key that issued it
        is valid."""
        if key == DEVELOPER.key:
            return DEVELOPER._replace(job=job) if await self.development() else None
        found = await self._find(key)
        if found is None or not found.holds(self._clock.now()):
            return None
        return identity_of(found, job)

    async def development(self) -> bool:
        """Returns whether development mode is on: no key was ever created, and every caller is an
        administrator."""
        if self._open_here and time.monotonic() - self._looked_for_any > KEY_CACHE_SECONDS:
            if await self._book.any():
                self._open_here = False
            self._looked_for_any = time.monotonic()
        return self._open_here

    def forget(self, key: str) -> None:
        """Drops a key that this process changed. Other processes see the change when their cache
        entry expires."""
        self._known.pop(key, None)
        self._unknown_keys.forget()
        self._looked_for_any = -KEY_CACHE_SECONDS

    async def _find(self, name: str) -> Key | None:
        known = self._known.get(name)
        if known is not None and time.monotonic() - known[0] <= KEY_CACHE_SECONDS:
            return known[1]
        is_ours = known is not None and known[1] is not None
        if not is_ours and await self._unknown_keys.knows(name, KEY_CACHE_SECONDS):
            return None
        asked = time.monotonic()
        key = await self._book.get(name)
        if len(self._known) >= MAX_CACHED_KEYS:
            self._known.clear()
        self._known[name] = (asked, key)
        return key
