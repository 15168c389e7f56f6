"""Two indexes to which the same things happen: the one in memory, and one that must not differ."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Sequence
from random import Random
from typing import Any, Self

from redis.asyncio import Redis

from fairlane.clock import ManualClock
from fairlane.index.index import EXACT_POSITIONS, Index, Picks, Stats
from fairlane.index.memory import MemoryIndex
from fairlane.index.redis import RedisIndex
from fairlane.model.worker import Loaded, Worker

Asking = tuple[Worker, Loaded, int]
"""Who asks, with what loaded, and for how many."""


class Tokens:
    """The same tokens for both: the second index starts where the first has started."""

    def __init__(self) -> None:
        self.next = 0

    def new(self) -> str:
        self.next += 1
        return f"t{self.next}"


class Pair:
    def __init__(self, memory: MemoryIndex, url: str, prefix: str) -> None:
        self.server, self.prefix = Redis.from_url(url, decode_responses=True), prefix
        other = RedisIndex(memory.catalog, ManualClock(0), url, prefix=prefix)
        self.memory, self.other, self.tokens = memory, other, Tokens()
        memory.new_token = other.new_token = self.tokens.new

    async def __aenter__(self) -> Self:
        await self.other.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.other.__aexit__()
        await self.server.aclose()

    async def do(self, verb: str, *arguments: object) -> Any:
        """What both answer."""
        expected = await getattr(self.memory, verb)(*arguments)
        answered = await getattr(self.other, verb)(*arguments)
        assert answered == expected, (verb, arguments, answered, expected)
        return expected

    async def claim(self, asking: Sequence[Asking], now: int, epoch: str) -> list[Picks]:
        """One after the other, except that some of those in Redis may be made together."""
        first, expected, from_here = self.tokens.next, [], self.tokens.next
        for worker, loaded, n in asking:
            self.tokens.next = from_here
            expected.append(await self.memory.claim(worker, loaded, n, now, epoch))
            from_here += n
        self.tokens.next = first
        claims = [self.other.claim(*each, now, epoch) for each in asking]
        soonest = min(picks.look_again_at for picks in expected)
        for each, ours, theirs in zip(asking, expected, await gather(*claims), strict=True):
            assert theirs.proposals == ours.proposals, each
            # memory may look again for a delayed job that has left meanwhile, and those who claim
            # together hear what holds for the last of them
            assert soonest <= theirs.look_again_at <= now + 5_000_000
        return expected

    async def compare_counts(self) -> None:
        """How many of what, and who is idle."""
        asleep = await self.server.zrange(f"{self.prefix}idle", 0, -1)
        assert asleep == [*self.memory.idle._idle]  # noqa: SLF001 - nobody else asks
        assert plain(await self.other.stats()) == plain(await self.memory.stats())
        assert plain(await self.other.stats(1_000)) == plain(await self.memory.stats(1_000))
        pools = [pool.name for pool in self.memory.pools]
        await self.do("held_slots", sorted(pools))

    async def promotable(self, now: int) -> list[tuple[str, int]]:
        """In whatever order."""
        expected = await self.memory.promotable(now, 1 << 30)
        answered = await self.other.promotable(now, 1 << 30)
        assert sorted(answered) == sorted(expected)
        two = await self.other.promotable(now, 2)
        assert len(two) == min(2, len(expected))
        assert set(two) <= set(expected)
        return expected

    async def compare_all(self, services: list[str], now: int, dice: Random) -> None:
        jobs = [*self.memory.waiting]
        for job in ["nobody", *dice.sample(jobs, min(len(jobs), 15))]:
            await self.do("standing", job, now)
        await self.do("estimates", ["nobody", *jobs[:15]], now)
        for service in services:
            await self.do("lanes", service)
            await self.do("front", service, dice.choice((1, 5, EXACT_POSITIONS)), now)
            await self.do("band_depths", service)
            for tenant in (None, "shop", "nobody"):
                await self.do("models", service, tenant, 9)
                await self.do("models", service, tenant, 1)
        await self.promotable(now)
        assert await walked(self.other) == await walked(self.memory)
        for before in (now - 30_000_000, now + 1):
            await self.do("unverified", before, 1000)
            await self.do("unverified", before, 3)
        waiting = [*self.memory.waiting.values()]
        truth = [each._replace(rev=each.rev + n % 2) for n, each in enumerate(waiting)]
        truth += [held.entry for held in self.memory.held.values()]
        await self.do("differing", truth)


async def walked(index: Index) -> dict[str, object]:
    return {entry.id: entry async for page in index.scan(7) for entry in page}


def plain(stats: Stats) -> Stats:
    return stats._replace(pools=sorted(stats.pools))
