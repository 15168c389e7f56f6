"""The key cache: a looked-up key is valid for two seconds, so a revoked key stops within them."""

from __future__ import annotations

import time

from fairlane.api.auth.api_keys import opens, split
from fairlane.api.auth.roles import DEVELOPER, Identity, identity_of
from fairlane.api.auth.unknown_keys import UnknownKeys
from fairlane.clock import Clock
from fairlane.ledger.api_keys import ApiKeys
from fairlane.model.key import Key

KEY_CACHE_SECONDS = 2.0
MAX_CACHED_KEYS = 10_000


class KeyCache:
    """`open_here`: whoever reaches it is this machine itself, and needs no key until there is
    one."""

    def __init__(self, book: ApiKeys, clock: Clock, *, open_here: bool) -> None:
        self._book, self._clock, self._open_here = book, clock, open_here
        self._known: dict[str, tuple[float, Key | None]] = {}
        self._unknown_keys = UnknownKeys(book)
        self._looked_for_any = -KEY_CACHE_SECONDS

    async def identify(self, credential: str | None) -> Identity | None:
        """Who shows this; None if nobody does. Without a credential only a developer passes."""
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
        """Whether what was checked before holds now."""
        if identity.key == DEVELOPER.key:
            return await self.development()
        key = await self._find(identity.key)
        return key is not None and key.holds(self._clock.now())

    async def named(self, key: str, job: str) -> Identity | None:
        """The holder of a ticket for a job, while the key that asked for it holds."""
        if key == DEVELOPER.key:
            return DEVELOPER._replace(job=job) if await self.development() else None
        found = await self._find(key)
        if found is None or not found.holds(self._clock.now()):
            return None
        return identity_of(found, job)

    async def development(self) -> bool:
        """Whether everybody who reaches it may do everything: nobody has ever made a key."""
        if self._open_here and time.monotonic() - self._looked_for_any > KEY_CACHE_SECONDS:
            if await self._book.any():
                self._open_here = False
            self._looked_for_any = time.monotonic()
        return self._open_here

    def forget(self, key: str) -> None:
        """It has changed here: others find out by themselves."""
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
