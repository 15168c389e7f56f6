"""Looking keys up, when many are sent that nobody has."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.api.auth.key_cache import KeyCache
from fairlane.api.auth.unknown_keys import MAX_SINGLE_LOOKUPS
from fairlane.errors import NotReady
from fairlane.ledger.api_keys import ApiKeys
from fairlane.model.key import Key
from tests.api.server import Gateway
from tests.core import core_of
from tests.world import World

pytestmark = pytest.mark.every_store
SECRET = "s" * 43


class Asked:
    """The ledger's own keys, and how often it was asked for them."""

    def __init__(self, book: ApiKeys) -> None:
        self._book, self.times = book, 0

    async def get(self, key: str) -> Key | None:
        self.times += 1
        return await self._book.get(key)

    async def names(self, most: int) -> frozenset[str]:
        self.times += 1
        return await self._book.names(most)


async def test_a_flood_of_keys_that_nobody_has_leaves_the_ledger_alone(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4: whoever has a key gets in meanwhile, and one made meanwhile opens within seconds."""
    monkeypatch.setattr("fairlane.api.auth.key_cache.KEY_CACHE_SECONDS", 3600)
    asked = Asked(core_of(world.engine).ledger.keys)
    ring = KeyCache(asked, world.clock, open_here=False)  # type: ignore[arg-type]
    before = await served.key()
    flood = [ring.identify(f"fl{n:016x}.{SECRET}") for n in range(2000)]
    assert not any(await asyncio.gather(*flood))
    assert asked.times == MAX_SINGLE_LOOKUPS + 1
    assert await ring.identify(before) is not None
    meanwhile = await served.key()
    assert await ring.identify(meanwhile) is None
    monkeypatch.setattr("fairlane.api.auth.key_cache.KEY_CACHE_SECONDS", 0)
    monkeypatch.setattr("fairlane.api.auth.unknown_keys.MAX_SINGLE_LOOKUPS", 0)  # the flood goes on
    assert await ring.identify(meanwhile) is not None


class Away(Asked):
    """Nobody can tell the names, after a while."""

    async def names(self, most: int) -> frozenset[str]:
        del most
        self.times += 1
        await asyncio.sleep(0)
        raise NotReady("away")


async def test_a_flood_waits_once_for_a_ledger_that_is_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.api.auth.unknown_keys.MAX_SINGLE_LOOKUPS", 0)
    asked = Away(core_of(world.engine).ledger.keys)
    ring = KeyCache(asked, world.clock, open_here=False)  # type: ignore[arg-type]
    flood = [ring.identify(f"fl{n:016x}.{SECRET}") for n in range(100)]
    said = await asyncio.gather(*flood, return_exceptions=True)
    assert all(isinstance(each, NotReady) for each in said)
    assert asked.times == 1


async def test_keys_that_are_known_do_not_count_as_a_flood(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4: or a key made elsewhere would be a stranger's wherever many are in use."""
    ring = KeyCache(core_of(world.engine).ledger.keys, world.clock, open_here=False)
    keys = [await served.key() for _ in range(3)]
    monkeypatch.setattr("fairlane.api.auth.unknown_keys.MAX_SINGLE_LOOKUPS", len(keys))
    for key in keys:
        assert await ring.identify(key) is not None
    monkeypatch.setattr("fairlane.api.auth.key_cache.KEY_CACHE_SECONDS", 0)
    ring._unknown_keys._tried = 0  # noqa: SLF001 - a while later
    for key in keys * 2:
        assert await ring.identify(key) is not None
    assert ring._unknown_keys._tried == 0  # noqa: SLF001


async def test_a_key_made_here_opens_at_once_in_a_flood(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.api.auth.key_cache.KEY_CACHE_SECONDS", 3600)
    ring = served.app.app_context.key_cache
    for n in range(MAX_SINGLE_LOOKUPS + 1):
        assert await ring.identify(f"fl{n:016x}.{SECRET}") is None
    assert await ring.identify(await served.key()) is not None
