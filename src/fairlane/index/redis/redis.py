"""The Redis scheduling index, for several processes. Each operation is one atomic Lua script. It
chooses the same jobs as the memory index."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from fairlane.clock import Clock
from fairlane.errors import NotReady
from fairlane.ids import Tokens
from fairlane.index.index import (
    ACTIVITY_PERIOD_MICROSECONDS,
    ACTIVITY_PERIODS,
    EXACT_POSITIONS,
    BandDepth,
    Freed,
    HeldEntry,
    IndexServer,
    ModelReport,
    ModelSample,
    NextJob,
    Picks,
    ServiceCallRef,
    Standing,
    Stats,
    TakenSlot,
)
from fairlane.index.redis import codec, decoding
from fairlane.index.redis.batching import Batcher
from fairlane.index.redis.codec import Asking, json, plain
from fairlane.index.redis.event_publisher import EventPublisher
from fairlane.index.redis.keys import KEY_PREFIX
from fairlane.index.redis.multiplexed_connection import Word
from fairlane.index.redis.output_publisher import OutputPublisher
from fairlane.index.redis.script_client import ScriptClient
from fairlane.index.redis.wakeups import Wakeups
from fairlane.model.catalog import Catalog
from fairlane.model.lease import Slot
from fairlane.model.queue_entry import Entry, Start
from fairlane.model.step import service_of
from fairlane.model.worker import Loaded, Worker
from fairlane.policy.circuit_breaker import CircuitBreaker, FailureVerdict

T = TypeVar("T")

CLAIM_BATCH, WRITE_BATCH = 1_000, 2_000
"""The most jobs claimed in one call, and the most put or freed in one call, unless a single caller
asks for more. The limit lets Redis serve other clients between two calls. A large call costs less
per job, because its jobs share users. Jobs of one ledger transaction are put in one call."""

MAX_FLOWS_EXAMINED = 1_000
"""The most flows per queue in which `stats` looks for the oldest job."""

ACTIVITY_SECONDS = ACTIVITY_PERIODS * ACTIVITY_PERIOD_MICROSECONDS // 1_000_000
"""Seconds after which the counts of a period are deleted."""

OPEN_BATCH = 1_000
"""The most jobs queued in one call when a rebuild ends. Redis serves other clients in between."""


class RedisIndex:
    """Every key begins with `prefix`."""

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        url: str,
        *,
        prefix: str = KEY_PREFIX,
        new_token: Callable[[], str] | None = None,
    ) -> None:
        self.catalog, self._clock, self._settings = catalog, clock, 0
        self.new_token = new_token or Tokens().new
        self._server = ScriptClient(url, prefix)
        self._wakeups = Wakeups(self._server)
        self._events = EventPublisher(self._server, self._wakeups.process)
        self._outputs = OutputPublisher(self._server, self._wakeups.process)
        self._run = self._server.run
        self._claim = Batcher[Asking](
            lambda now, asking: self._run("claim", now, *codec.asked(asking)), CLAIM_BATCH
        )
        self._put = Batcher[Entry](
            lambda now, entries: self._run("put", now, *codec.sent(entries)), WRITE_BATCH
        )
        self._free = Batcher[Freed](
            lambda _, freed: self._run("free", *codec.freed(freed)), WRITE_BATCH
        )

    async def check(self) -> None:
        """Raise SetupError if the server may evict keys. Load the scripts."""
        await self._server.check()

    async def close(self) -> None:
        await self._outputs.close()
        await self._events.close()
        await self._wakeups.close()
        await self._server.close()

    async def __aenter__(self) -> Self:
        await self.check()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _read(self, read: Callable[[Any], T], script: str, *arguments: Word) -> T:
        """Run a script and decode its answer with `read`."""
        answer = await self._run(script, *arguments)
        return await self._server.read(script, lambda: read(answer))

    # --- waiting jobs ------------------------------------------------------------------------
    async def put(self, entries: Sequence[Entry], now: int) -> None:
        if entries:
            self._check(entries)
            await self._put.call(now, entries)

    async def take(self, jobs: Sequence[tuple[str, int]]) -> None:
        if jobs:
            await self._run("take", *codec.pairs(jobs))

    async def correct_entry(self, seen: Entry, truth: Entry | None, now: int) -> None:
        entries = [] if truth is None else [truth]
        self._check(entries)
        await self._run("correct_entry", seen.id, codec.text(seen), now, *codec.sent(entries))

    async def announced(self, levels: Sequence[tuple[str, int]]) -> None:
        if levels:
            await self._run("announced", *codec.pairs(levels))

    def _check(self, entries: Sequence[Entry]) -> None:
        """Raises UnknownName for a service that is not configured."""
        for lane in {entry.lane for entry in entries}:
            self.catalog.service(service_of(lane))

    # --- claims and leases -------------------------------------------------------------------
    async def claim(self, worker: Worker, loaded: Loaded, n: int, now: int, epoch: str) -> Picks:
        tokens = [self.new_token() for _ in range(n)]
        await self._wakeups.register(worker.id)
        kind = codec.kind(worker, self._wakeups.process)
        asking = Asking(kind, worker.id, loaded, epoch, tokens)
        (look_again_at, *answers), place = await self._claim.call(now, [asking], n)
        rows = answers[place]
        if rows is None:
            self._wakeups.unregister(worker.id)
            raise NotReady("the index is being rebuilt")
        if rows:
            self._wakeups.unregister(worker.id)
        found = await self._server.read("claim", lambda: codec.proposals(tokens, rows))
        return Picks(found, look_again_at)

    async def drop(self, tokens: Sequence[str], now: int) -> None:  # noqa: ARG002 - not needed here
        if tokens:
            await self._run("drop", *tokens)

    async def free(self, freed: Sequence[Freed], now: int) -> None:
        if freed:
            await self._free.call(now, freed)

    async def unverified(self, before: int, limit: int) -> list[HeldEntry]:
        return await self._read(lambda rows: [*map(codec.held, rows)], "unverified", before, limit)

    async def verified(self, tokens: Sequence[str], now: int) -> None:
        if tokens:
            await self._run("verified", now, *tokens)

    async def wait(self, worker_id: str, until: int) -> None:
        wakeup = self._wakeups.get(worker_id)
        if wakeup is not None and not wakeup.is_set():
            await self._clock.wait(wakeup, until - self._clock.now())

    async def leave(self, worker_id: str) -> None:
        """A worker that got a job is not idle: then no call is made."""
        if self._wakeups.unregister(worker_id):
            await self._run("leave", worker_id)

    async def end_waits(self, worker_id: str) -> None:
        await self._run("end_waits", worker_id)

    # --- services ----------------------------------------------------------------------------
    async def configure(self, catalog: Catalog, settings: int) -> None:
        """The settings that decide are stored in Redis. This process uses its copy only to know the
        names of the services."""
        if settings >= self._settings:
            self.catalog, self._settings = catalog, settings
        await self._run("configure", settings, *codec.settings(catalog))

    async def breaker(self, service: str, region: str | None) -> CircuitBreaker:
        return await self._read(decoding.breaker, "breaker", service, region or "")

    async def unavailable(
        self, call: ServiceCallRef, job: str, now: int, retry_after: int
    ) -> FailureVerdict:
        return await self._read(decoding.failure, "unavailable", json(call), job, now, retry_after)

    async def learn_times(self, samples: Sequence[ModelSample]) -> None:
        if samples:
            await self._run("learn_times", json(samples))

    # --- queries -----------------------------------------------------------------------------
    async def standing(self, job: str, now: int) -> Standing | None:
        return await self._read(decoding.standing, "standing", job, now)

    async def estimates(self, jobs: Sequence[str], now: int) -> dict[str, Standing]:
        if not jobs:
            return {}
        return await self._read(decoding.estimates, "estimates", now, *jobs)

    async def front(self, service: str, n: int, now: int) -> list[NextJob]:
        most = min(n, EXACT_POSITIONS)
        return await self._read(decoding.front, "front", service, most, now)

    async def held_slots(self, pools: Sequence[str]) -> list[TakenSlot]:
        if not pools:
            return []
        return await self._read(decoding.held_slots, "held_slots", *pools)

    async def band_depths(self, service: str) -> list[BandDepth]:
        return await self._read(decoding.band_depths, "band_depths", service)

    async def promotable(self, now: int, limit: int) -> list[tuple[str, int]]:
        return await self._read(decoding.promotable, "promotable", now, limit)

    async def differing(self, truth: Sequence[Entry]) -> list[tuple[str, Entry | None]]:
        if not truth:
            return []
        ids = [entry.id for entry in truth]
        return await self._read(lambda stored: decoding.differing(truth, stored), "shown", *ids)

    async def stats(self, examined: int | None = None) -> Stats:
        return await self._read(decoding.stats, "stats", examined or MAX_FLOWS_EXAMINED)

    async def count_activity(self, period: int, counts: Mapping[str, int]) -> None:
        if counts:
            words = [part for name, n in counts.items() for part in (name, n)]
            await self._run("count_activity", str(period), ACTIVITY_SECONDS, *words)

    async def activity(self, since: int) -> dict[int, dict[str, int]]:
        newest = self._clock.now() // ACTIVITY_PERIOD_MICROSECONDS
        periods = range(max(since, newest - ACTIVITY_PERIODS + 1), newest + 1)
        if not periods:
            return {}
        return await self._read(
            lambda rows: decoding.activity(periods, rows), "activity", *map(str, periods)
        )

    async def scan(self, page: int) -> AsyncIterator[list[Entry]]:
        """Jobs that wait during the whole iteration are included. Jobs that arrive or leave
        meanwhile may be."""
        cursor, seen = b"0", list[Entry]()
        while True:
            cursor, found = await self._read(decoding.page, "scan", cursor, page)
            seen += found
            while len(seen) >= page or (cursor == b"0" and seen):
                yield seen[:page]
                del seen[:page]
            if cursor == b"0":
                return

    async def models(self, service: str, tenant: str | None, most: int) -> ModelReport:
        return await self._read(decoding.models, "models", service, tenant or "", most)

    async def lanes(self, service: str) -> dict[str, int]:
        return await self._read(lambda found: dict(plain(found)), "lanes", service)

    # --- listeners to jobs -------------------------------------------------------------------
    def notify(self, jobs: Sequence[str]) -> None:
        self._events.publish(jobs)

    def subscribe(self, job: str, changed: Callable[[], None]) -> None:
        self._wakeups.subscribe(job, changed)

    def unsubscribe(self, job: str) -> None:
        self._wakeups.unsubscribe(job)

    def publish_output(self, job: str, text: str) -> None:
        self._outputs.publish(job, text)

    async def flush_output(self) -> None:
        await self._outputs.flush()

    def subscribe_output(self, job: str, received: Callable[[str], None]) -> None:
        self._wakeups.subscribe_output(job, received)

    def unsubscribe_output(self, job: str) -> None:
        self._wakeups.unsubscribe_output(job)

    async def server(self) -> IndexServer | None:
        return await self._server.server()

    # --- rebuild -----------------------------------------------------------------------------
    async def serves(self, epoch: str) -> int | None:
        settings: int | None = await self._run("serves", epoch)
        if settings is not None:
            self._server.life = epoch
        return settings

    async def begin(self, epoch: str) -> None:
        self._server.life = epoch
        await self._run("begin", epoch, self._settings, *codec.settings(self.catalog))
        await self._server.remove_other_builds()

    async def load(self, epoch: str, entries: Sequence[Entry], held: Sequence[HeldEntry]) -> None:
        if entries:
            await self._run("load", epoch, *codec.sent(entries))
        if held:
            await self._run("load_held", epoch, *codec.running(held))

    async def load_slots(self, epoch: str, rows: Sequence[tuple[Slot, str]]) -> None:
        if rows:
            await self._run("load_slots", epoch, json([(*slot, token) for slot, token in rows]))

    async def load_starts(self, epoch: str, starts: Sequence[Start]) -> None:
        known = [start for start in starts if self.catalog.knows(start.service)]
        if known:
            await self._run("load_starts", epoch, json(known))

    async def open(self, epoch: str, now: int) -> bool:
        while (left := await self._run("open", epoch, now, OPEN_BATCH)) > 0:
            pass
        return bool(left == 0)

    async def sync_slots(self, pool: str, rows: Sequence[tuple[Slot, str]], now: int) -> int:
        truth = json([(*slot, token) for slot, token in rows])
        return int(await self._run("sync_slots", pool, truth, now))

    async def cleanup(self, now: int) -> None:
        for service in await self._run("services"):
            cursor = await self._run("cleanup", service, "0", now)
            while cursor != b"0":
                cursor = await self._run("cleanup", service, cursor, now)
