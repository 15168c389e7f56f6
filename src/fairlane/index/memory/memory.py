"""The in-memory scheduling index, for one process. It is the executable specification of every
other index."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from fairlane.clock import Clock
from fairlane.errors import NotReady
from fairlane.ids import Tokens
from fairlane.index.index import (
    ACTIVITY_PERIODS,
    FEW_FLOWS_EXAMINED,
    LOOK_AGAIN_MICROSECONDS,
    MAX_DUE_JOBS_PER_CLAIM,
    BandDepth,
    Freed,
    HeldEntry,
    IndexServer,
    ModelReport,
    ModelSample,
    NextJob,
    Picks,
    Proposal,
    ServiceCallRef,
    SlotModel,
    Standing,
    Stats,
    TakenSlot,
)
from fairlane.index.memory import queries
from fairlane.index.memory.circuit_breakers import CircuitBreakerTable, breaker_keys
from fairlane.index.memory.claim import ClaimRound, Reservation
from fairlane.index.memory.concurrency_limits import Pools, SlotPool
from fairlane.index.memory.delayed_jobs import DelayedJobs
from fairlane.index.memory.flows import Flow
from fairlane.index.memory.idle_workers import IdleWorkers
from fairlane.index.memory.model_times import LearntTimes
from fairlane.index.memory.parked_flows import ParkedFlows
from fairlane.index.memory.service_queue import ServiceQueue
from fairlane.index.memory.wakeups import has_work_for, ranked_regions
from fairlane.model.catalog import Catalog
from fairlane.model.construct import maker
from fairlane.model.lease import Slot
from fairlane.model.queue_entry import Entry, Start
from fairlane.model.service import is_user_pool, user_of_pool
from fairlane.model.step import Lane, service_of
from fairlane.model.worker import Loaded, Worker
from fairlane.policy.circuit_breaker import CircuitBreaker, FailureVerdict

held = maker(HeldEntry)


class MemoryIndex:
    counts_users = True  # model affinity counts waiting users; simulations turn it off to compare

    def __init__(
        self, catalog: Catalog, clock: Clock, new_token: Callable[[], str] | None = None
    ) -> None:
        self.catalog, self._clock, self._settings = catalog, clock, 0
        self.new_token = new_token or Tokens().new
        self._activity: dict[int, Counter[str]] = {}
        self._clear("")
        self.model_times, self.idle, self.breakers = (
            LearntTimes(),
            IdleWorkers(),
            CircuitBreakerTable(),
        )

    def _clear(self, epoch: str) -> None:
        self._epoch, self._loading = epoch, True
        self.waiting, self.held = dict[str, Entry](), dict[str, HeldEntry]()
        self.service_queues: dict[str, ServiceQueue] = {}
        self.pools = Pools()
        self.pools.configure(self.catalog.all_pools(), self.catalog.services)
        self.hold: Reservation | None = None
        self.held_revs, self.verified_at = dict[str, int](), dict[str, int]()
        self.delays = DelayedJobs()
        self._parking = ParkedFlows()
        self._gone, self._freed = dict[str, int](), set[str]()
        self.last_models = dict[str, Loaded]()

    # --- waiting jobs ------------------------------------------------------------------------
    async def put(self, entries: Sequence[Entry], now: int) -> None:
        idle = len(self.idle) > 0
        for entry in entries:
            if not self._is_news(entry):
                continue
            self._remove(entry.id)
            self._add(entry, now)
            soon = now + LOOK_AGAIN_MICROSECONDS  # a worker woken early claims again in time
            if idle and entry.ready_at < soon:
                tier = self.catalog.tiers.names[entry.rank]
                lane = Lane.parse(entry.lane)
                self.idle.wake_for(lane, tier, entry.model, ranked_regions(self, lane, now))

    async def take(self, jobs: Sequence[tuple[str, int]]) -> None:
        for job, rev in jobs:
            known = self.waiting.get(job)
            if known is not None and known.rev <= rev:
                self._remove(job)
            if self._loading:
                self._gone[job] = max(rev, self._gone.get(job, 0))

    async def correct_entry(self, seen: Entry, truth: Entry | None, now: int) -> None:
        if self.waiting.get(seen.id) not in (None, seen):
            return
        self._remove(seen.id)
        if self.held_revs.get(seen.id) == seen.rev:
            del self.held_revs[seen.id]
        if truth is not None:
            await self.put([truth], now)

    async def announced(self, levels: Sequence[tuple[str, int]]) -> None:
        for job, rank in levels:
            entry = self.waiting.get(job)
            if entry is not None:
                self.waiting[job] = entry._replace(announced=rank)

    def _is_news(self, entry: Entry) -> bool:
        job, rev = entry[:2]
        known = self.waiting.get(job)
        if known is not None and known.rev >= rev:
            return False
        if self._gone and self._gone.get(job, 0) >= rev:
            return False
        return self.held_revs.get(job, 0) < rev

    def _add(self, entry: Entry, now: int) -> None:
        service_queue = self._service_queue(entry)
        self.waiting[entry.id] = entry
        if self._loading:
            return
        if entry.ready_at > now:
            self.delays.add(entry)
        else:
            service_queue.enter(entry)

    def _remove(self, job: str) -> None:
        entry = self.waiting.pop(job, None)
        if entry is None or self._loading:
            return
        if not self.delays.discard(job):
            self._service_queue(entry).remove(entry)

    def _service_queue(self, entry: Entry) -> ServiceQueue:
        name = service_of(entry.lane)
        service_queue = self.service_queues.get(name)
        if service_queue is None:
            service_queue = self.service_queues[name] = ServiceQueue(self.catalog.service(name))
        return service_queue

    # --- claims and leases -------------------------------------------------------------------
    async def claim(self, worker: Worker, loaded: Loaded, n: int, now: int, epoch: str) -> Picks:
        if self._loading or epoch != self._epoch:
            raise NotReady("the index is being rebuilt")
        self.idle.leave(worker.id)
        self._move_due(now)
        found: list[Proposal] = []
        claim = ClaimRound(self, worker, loaded, now)
        while len(found) < n and (proposal := claim.next()) is not None:
            found.append(proposal)
        if not found:
            self.idle.file(worker, loaded)
        return Picks(found, self._look_again_at(now))

    async def drop(self, tokens: Sequence[str], now: int) -> None:  # noqa: ARG002 - not needed here
        for token in tokens:
            self._release(token, None, refused=True)
        self._wake(len(tokens))

    async def free(self, freed: Sequence[Freed], now: int) -> None:  # noqa: ARG002 - not needed here
        closed = self.breakers and self.breakers.closed_by(
            ServiceCallRef(*answered, token) for token, _, _, answered in freed if answered
        )
        for token, actual, kept, answered in freed:
            self._release(token, actual, kept=kept, answered=answered is not None)
        self._wake(len(self.idle) if closed else len(freed))

    async def unverified(self, before: int, limit: int) -> list[HeldEntry]:
        return queries.unverified(self, before, limit)

    async def verified(self, tokens: Sequence[str], now: int) -> None:
        for token in tokens:
            if token in self.held:
                self.verified_at[token] = now

    async def wait(self, worker_id: str, until: int) -> None:
        wakeup = self.idle.wakeup(worker_id)
        if wakeup is not None and not wakeup.is_set():
            await self._clock.wait(wakeup, until - self._clock.now())

    async def leave(self, worker_id: str) -> None:
        self.idle.leave(worker_id)

    async def end_waits(self, worker_id: str) -> None:
        self.idle.end_waits(worker_id)

    def hand_out(
        self, token: str, entry: Entry, slots: tuple[Slot, ...], region: str | None, now: int
    ) -> None:
        """Record a claimed job as held."""
        self.held[token] = held((token, entry, slots, now))
        self.held_revs[entry.id] = entry.rev
        if self.breakers:
            self.breakers.let_through(service_of(entry.lane), region, token)
        if self.hold is not None and self.hold.job == entry.id:
            self.hold = None

    def _release(
        self,
        token: str,
        actual: int | None,
        *,
        kept: tuple[Slot, ...] = (),
        refused: bool = False,
        answered: bool = False,
    ) -> None:
        for user in self.pools.release(token, kept=kept, refused=refused):
            self._parking.unpark(user)
        if self.breakers:
            self.breakers.forget_probe(token)
        if self._loading:
            self._freed.add(token)
        held = self.held.pop(token, None)
        self.verified_at.pop(token, None)
        if held is None:
            return
        entry = held.entry
        if self.held_revs.get(entry.id) == entry.rev:
            del self.held_revs[entry.id]
        if entry.model and not answered:
            self.pools.forget_models(held.slots)
        self._service_queue(entry).ended(entry, 0 if refused else actual)

    def park(self, service_queue: ServiceQueue, flow: Flow) -> None:
        """Park a flow: its user is at their running limit."""
        if self.hold is not None and self.hold.job == flow.line.head.id:
            self.hold = None
        self._parking.park(service_queue, flow)

    def _move_due(self, now: int) -> None:
        if not self._loading:
            for entry in self.delays.due(now, MAX_DUE_JOBS_PER_CLAIM):
                self._service_queue(entry).enter(entry)

    def _look_again_at(self, now: int) -> int:
        times = [pool.next_expiry(now) for pool in self.pools]
        times += [self.delays.next_due(), self.breakers.next_probe_at(now)]
        soonest = min((at for at in times if at is not None), default=now + LOOK_AGAIN_MICROSECONDS)
        return max(now, min(soonest, now + LOOK_AGAIN_MICROSECONDS))

    def _wake(self, n: int) -> None:
        if len(self.idle):
            self.idle.wake(n, lambda worker: has_work_for(self, worker))

    # --- services ----------------------------------------------------------------------------
    async def configure(self, catalog: Catalog, settings: int) -> None:
        if settings < self._settings:
            return
        self.catalog, self._settings = catalog, settings
        self.pools.configure(catalog.all_pools(), catalog.services)
        for name, service_queue in list(self.service_queues.items()):
            service = catalog.service(name)
            if service_queue.orders_like(service):
                service_queue.configure(service)
            else:
                self._parking.forget(service_queue)
                running = [held.entry for held in self.held.values()]
                waiting = [each for each in self.waiting.values() if each.id not in self.delays]
                self.service_queues[name] = ServiceQueue(service).line_up(name, waiting, running)
        self._wake(len(self.idle))

    def slot_pools(self, service: str, region: str | None, now: int) -> list[SlotPool]:
        found = []
        for pool in self.catalog.pools(service, region):
            slots = self.pools.get(pool.name)
            if service not in self.catalog.services:
                slots = self.pools.made(pool)
            if slots is not None:
                slots.expire(now)
                found.append(slots)
        return found

    def admits(self, service: str, region: str | None, now: int) -> bool:
        if self.catalog.service(service).paused:
            return False
        return not self.breakers or self.breakers.admits(service, region, now)

    def current_hold(self, now: int) -> Reservation | None:
        if self.hold is not None and (self.hold.until <= now or self.hold.job not in self.waiting):
            self.hold = None
        return self.hold

    async def breaker(self, service: str, region: str | None) -> CircuitBreaker:
        return self.breakers.get(breaker_keys(service, region)[-1])

    async def unavailable(
        self, call: ServiceCallRef, job: str, now: int, retry_after: int
    ) -> FailureVerdict:
        return self.breakers.unavailable(call, job, now, retry_after)

    async def learn_times(self, samples: Sequence[ModelSample]) -> None:
        for sample in samples:
            self.model_times.learn(sample)

    # --- queries -----------------------------------------------------------------------------
    async def standing(self, job: str, now: int) -> Standing | None:
        self._move_due(now)
        return None if self._loading else queries.standing(self, job, now)

    def estimated(self, job: str, now: int) -> Standing | None:
        """Like `standing`, but every position is an estimate. Much faster: for simulations."""
        self._move_due(now)
        return None if self._loading else queries.estimated(self, job, now)

    async def estimates(self, jobs: Sequence[str], now: int) -> dict[str, Standing]:
        self._move_due(now)
        if self._loading:
            return {}
        samples = queries.FlowSamples(FEW_FLOWS_EXAMINED)
        found = ((job, queries.estimated(self, job, now, samples)) for job in jobs)
        return {job: standing for job, standing in found if standing is not None}

    async def front(self, service: str, n: int, now: int) -> list[NextJob]:
        self._move_due(now)
        return [] if self._loading else queries.front(self, service, n, now)

    async def held_slots(self, pools: Sequence[str]) -> list[TakenSlot]:
        return queries.held_slots(self, pools)

    async def band_depths(self, service: str) -> list[BandDepth]:
        return queries.band_depths(self, service)

    async def promotable(self, now: int, limit: int) -> list[tuple[str, int]]:
        self._move_due(now)
        return queries.promotable(self, now, limit)

    async def differing(self, truth: Sequence[Entry]) -> list[tuple[str, Entry | None]]:
        return queries.differing(self, truth)

    async def stats(self, examined: int | None = None) -> Stats:
        return await queries.stats(self, examined)

    async def count_activity(self, period: int, counts: Mapping[str, int]) -> None:
        self._activity.setdefault(period, Counter()).update(counts)
        for old in [each for each in self._activity if each <= period - ACTIVITY_PERIODS]:
            del self._activity[old]

    async def activity(self, since: int) -> dict[int, dict[str, int]]:
        return {at: dict(counts) for at, counts in self._activity.items() if at >= since}

    def scan(self, page: int) -> AsyncIterator[list[Entry]]:
        return queries.pages(self, page)

    async def models(self, service: str, tenant: str | None, most: int) -> ModelReport:
        slots = [
            SlotModel(pool.name, n, loaded)
            for pool in self.pools
            if pool.name.partition("@")[0] == f"svc:{service}"
            for n, loaded in pool.models.items()
        ]
        times = self.model_times.recent(service, tenant, most)
        return ModelReport(times, self.last_models.get(service, Loaded()), sorted(slots))

    async def lanes(self, service: str) -> dict[str, int]:
        return queries.lanes(self, service)

    # --- rebuild -----------------------------------------------------------------------------
    async def serves(self, epoch: str) -> int | None:
        return None if self._loading or epoch != self._epoch else self._settings

    async def begin(self, epoch: str) -> None:
        self._clear(epoch)

    async def load(self, epoch: str, entries: Sequence[Entry], held: Sequence[HeldEntry]) -> None:
        if epoch != self._epoch:
            return
        for entry in entries:
            if self._is_news(entry):
                self.waiting[entry.id] = entry
        for each in held:
            if each.token not in self._freed:
                self.held[each.token] = each
                self.held_revs[each.entry.id] = each.entry.rev

    async def load_slots(self, epoch: str, rows: Sequence[tuple[Slot, str]]) -> None:
        for slot, token in rows if epoch == self._epoch else ():
            if slot.until or token not in self._freed:
                self.pools.hold(slot, token)

    async def load_starts(self, epoch: str, starts: Sequence[Start]) -> None:
        for start in starts if epoch == self._epoch else ():
            if not self.catalog.knows(start.service):
                continue  # no job of it waits
            service_queue = self.service_queues.get(start.service)
            if service_queue is None:
                service_queue = self.service_queues[start.service] = ServiceQueue(
                    self.catalog.service(start.service)
                )
            if service_queue.fair:
                service_queue.restart(start.rank, start.user, start.job, start.at)

    async def open(self, epoch: str, now: int) -> bool:
        if epoch != self._epoch:
            return False
        entries = sorted(self.waiting.values(), key=lambda entry: (entry.score, entry.id))
        self.waiting, self._loading, self._gone, self._freed = {}, False, {}, set()
        self.breakers.keep_probes(self.held)
        for held in self.held.values():
            self._service_queue(held.entry).resume(held.entry)
        for entry in entries:
            self._add(entry, now)
        self._wake(len(self.idle))
        return True

    async def sync_slots(self, pool: str, rows: Sequence[tuple[Slot, str]], now: int) -> int:
        proposed = {token for token in self.held if token not in self.verified_at}
        corrected = self.pools.sync(pool, rows, proposed, now)
        self._parking.unpark(user_of_pool(pool) if is_user_pool(pool) else "")
        self._wake(corrected)
        return corrected

    def notify(self, jobs: Sequence[str]) -> None:
        """Does nothing: no other process uses this index."""

    def subscribe(self, job: str, changed: Callable[[], None]) -> None:
        """Does nothing: no other process uses this index."""

    def unsubscribe(self, job: str) -> None: ...

    def publish_output(self, job: str, text: str) -> None:
        """Does nothing: no other process uses this index."""

    async def flush_output(self) -> None: ...

    def subscribe_output(self, job: str, received: Callable[[str], None]) -> None:
        """Does nothing: no other process uses this index."""

    def unsubscribe_output(self, job: str) -> None: ...

    async def server(self) -> IndexServer | None:
        return None

    async def close(self) -> None: ...

    async def cleanup(self, now: int) -> None:
        for name, service_queue in list(self.service_queues.items()):
            idle = service_queue.cleanup(now, self.catalog.tiers.patience)
            if idle and self.pools.forgets(name, now):
                del self.service_queues[name]
                self.last_models.pop(name, None)
