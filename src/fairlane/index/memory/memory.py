"""The index in memory, for one process. The executable specification of every other one."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from fairlane.clock import Clock
from fairlane.errors import NotReady
from fairlane.ids import Tokens
from fairlane.index.index import Call, Freed, Held, Picks, Proposal, Standing, Stats
from fairlane.index.memory import views
from fairlane.index.memory.desk import Desk
from fairlane.index.memory.flows import Flow
from fairlane.index.memory.idle import Idle
from fairlane.index.memory.pick import Hold, Round
from fairlane.index.memory.pools import Pools, SlotPool
from fairlane.model.catalog import Catalog
from fairlane.model.entry import Entry, Start
from fairlane.model.lease import Slot
from fairlane.model.step import Lane
from fairlane.model.worker import Loaded, Worker
from fairlane.policy.estimate import FIRST_LOAD, Average
from fairlane.policy.health import Failure, Gate, failed, forget_probe, let_through, succeeded

MOST_LANES = 64
DUE_A_CLAIM = 128
LOOK_AGAIN = 5_000_000


class MemoryIndex:
    def __init__(
        self, catalog: Catalog, clock: Clock, new_token: Callable[[], str] | None = None
    ) -> None:
        self.catalog, self.new_token = catalog, new_token or Tokens().new
        self._clock = clock
        self._clear("")
        self.loads = Average(FIRST_LOAD)
        self.idle = Idle()
        self.gates: dict[str, Gate] = {}

    def _clear(self, epoch: str) -> None:
        self._epoch, self._loading = epoch, True
        self.waiting: dict[str, Entry] = {}
        self.held: dict[str, Held] = {}
        self.desks: dict[str, Desk] = {}
        self.pools = Pools()
        self.pools.configure(self.catalog.all_pools())
        self.hold: Hold | None = None
        self._held_revs: dict[str, int] = {}
        self._verified: dict[str, int] = {}
        self._delayed: list[tuple[int, str, int]] = []
        self._delayed_jobs: set[str] = set()
        self._parked: dict[str, list[tuple[Desk, Flow]]] = {}
        self._gone: dict[str, int] = {}
        self._freed: set[str] = set()

    # --- what waits --------------------------------------------------------------------------
    async def put(self, entries: Sequence[Entry], now: int) -> None:
        for entry in entries:
            if self._is_news(entry):
                self._remove(entry.id)
                self._add(entry, now)
                if len(self.idle) and entry.ready_at <= now:
                    self.idle.wake_for(Lane.parse(entry.lane), entry.model)

    async def take(self, jobs: Sequence[tuple[str, int]]) -> None:
        for job, rev in jobs:
            known = self.waiting.get(job)
            if known is not None and known.rev <= rev:
                self._remove(job)
            if self._loading:
                self._gone[job] = max(rev, self._gone.get(job, 0))

    async def mend(self, seen: Entry, truth: Entry | None, now: int) -> None:
        known = self.waiting.get(seen.id)
        if known is not None and known != seen:
            return
        self._remove(seen.id)
        if self._held_revs.get(seen.id) == seen.rev:
            del self._held_revs[seen.id]
        if truth is not None:
            await self.put([truth], now)

    async def announced(self, levels: Sequence[tuple[str, int]]) -> None:
        for job, rank in levels:
            entry = self.waiting.get(job)
            if entry is not None:
                self.waiting[job] = entry._replace(announced=rank)

    def _is_news(self, entry: Entry) -> bool:
        known = self.waiting.get(entry.id)
        if known is not None and known.rev >= entry.rev:
            return False
        if self._gone and self._gone.get(entry.id, 0) >= entry.rev:
            return False
        return self._held_revs.get(entry.id, 0) < entry.rev

    def _add(self, entry: Entry, now: int) -> None:
        self.waiting[entry.id] = entry
        if self._loading:
            return
        if entry.ready_at > now:
            heapq.heappush(self._delayed, (entry.ready_at, entry.id, entry.rev))
            self._delayed_jobs.add(entry.id)
        else:
            self._desk(entry).enter(entry)

    def _remove(self, job: str) -> None:
        entry = self.waiting.pop(job, None)
        if entry is None or self._loading:
            return
        if job in self._delayed_jobs:
            self._delayed_jobs.discard(job)
        else:
            self._desk(entry).remove(entry)

    def _desk(self, entry: Entry) -> Desk:
        name = entry.lane.split("|", 1)[0]
        desk = self.desks.get(name)
        if desk is None:
            desk = self.desks[name] = Desk(self.catalog.service(name))
        return desk

    # --- handing out -------------------------------------------------------------------------
    async def claim(self, worker: Worker, loaded: Loaded, n: int, now: int, epoch: str) -> Picks:
        if self._loading or epoch != self._epoch:
            raise NotReady("the index is being rebuilt")
        self.idle.leave(worker.id)
        self._move_due(now)
        found: list[Proposal] = []
        claim = Round(self, worker, loaded, now)
        while len(found) < n:
            proposal = claim.next()
            if proposal is None:
                break
            found.append(proposal)
        if not found:
            self.idle.file(worker, loaded)
        return Picks(found, self._look_again_at(now))

    async def drop(self, tokens: Sequence[str], now: int) -> None:  # noqa: ARG002 - a clockless index
        for token in tokens:
            self._let_go(token, None, refused=True)
        self._wake(len(tokens))

    async def free(self, freed: Sequence[Freed], now: int) -> None:  # noqa: ARG002 - a clockless index
        for each in freed:
            self._let_go(each.token, each.actual, kept=each.kept)
        self._wake(len(freed))

    async def unverified(self, before: int, limit: int) -> list[Held]:
        old = [
            held for held in self.held.values() if self._verified.get(held.token, held.at) < before
        ]
        return old[:limit]

    async def verified(self, tokens: Sequence[str], now: int) -> None:
        for token in tokens:
            if token in self.held:
                self._verified[token] = now

    async def wait(self, worker_id: str, until: int) -> None:
        bell = self.idle.bell(worker_id)
        if bell is not None and not bell.is_set():
            await self._clock.wait(bell, until - self._clock.now())

    async def leave(self, worker_id: str) -> None:
        self.idle.leave(worker_id)

    def hand_out(
        self, token: str, entry: Entry, slots: tuple[Slot, ...], region: str | None, now: int
    ) -> None:
        """File a picked job as held."""
        self.held[token] = Held(token, entry, slots, now)
        self._held_revs[entry.id] = entry.rev
        if self.gates:
            for key in gate_keys(entry.lane.split("|", 1)[0], region):
                if key in self.gates:
                    self.gates[key] = let_through(self.gates[key], token)
        if self.hold is not None and self.hold.job == entry.id:
            self.hold = None

    def _let_go(
        self,
        token: str,
        actual: int | None,
        *,
        kept: tuple[Slot, ...] = (),
        refused: bool = False,
    ) -> None:
        self.pools.release(token, kept=kept, refused=refused)
        if self.gates:
            self._forget_probe(token)
        if self._loading:
            self._freed.add(token)
        held = self.held.pop(token, None)
        self._verified.pop(token, None)
        if held is None:
            return
        entry = held.entry
        if self._held_revs.get(entry.id) == entry.rev:
            del self._held_revs[entry.id]
        self._desk(entry).ended(entry, actual)
        if self._parked and entry.user in self._parked:
            for desk, flow in self._parked.pop(entry.user):
                desk.unpark(flow)

    def park(self, desk: Desk, flow: Flow) -> None:
        """Its user has as many jobs running as allowed: out of the order until one ends."""
        flow.parked = True
        self._parked.setdefault(flow.user, []).append((desk, flow))

    def _move_due(self, now: int) -> None:
        if self._loading:
            return
        for _ in range(DUE_A_CLAIM):
            if not self._delayed or self._delayed[0][0] > now:
                return
            _, job, rev = heapq.heappop(self._delayed)
            entry = self.waiting.get(job)
            if entry is not None and entry.rev == rev and job in self._delayed_jobs:
                self._delayed_jobs.discard(job)
                self._desk(entry).enter(entry)

    def _look_again_at(self, now: int) -> int:
        times = [now + LOOK_AGAIN]
        if self._delayed:
            times.append(self._delayed[0][0])
        times += [pool_end for pool in self.pools if (pool_end := pool.next_expiry()) is not None]
        times += [gate.closed_until for gate in self.gates.values() if gate.closed_until > now]
        return max(now, min(times))

    def _wake(self, n: int) -> None:
        if len(self.idle):
            lanes = [Lane.parse(lane) for desk in self.desks.values() for lane in desk.lanes]
            if lanes:
                self.idle.wake(n, lambda worker: any(worker.covers(lane) for lane in lanes))

    # --- services ----------------------------------------------------------------------------
    async def configure(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.pools.configure(catalog.all_pools())
        for name, desk in self.desks.items():
            desk.configure(catalog.service(name))
        self._wake(len(self.idle))

    def slot_pools(self, service: str, region: str | None, now: int) -> list[SlotPool]:
        found = []
        for pool in self.catalog.pools(service, region):
            slots = self.pools.get(pool.name)
            if slots is not None:
                slots.expire(now)
                found.append(slots)
        return found

    def admits(self, service: str, region: str | None, now: int) -> bool:
        if self.catalog.service(service).paused:
            return False
        return not self.gates or all(
            self.gates[key].admits(now) for key in gate_keys(service, region) if key in self.gates
        )

    def current_hold(self, now: int) -> Hold | None:
        if self.hold is not None and (self.hold.until <= now or self.hold.job not in self.waiting):
            self.hold = None
        return self.hold

    async def answered(self, calls: Sequence[Call]) -> None:
        if self.gates:
            for call in calls:
                for key in gate_keys(call.service, call.region):
                    if key in self.gates:
                        self._set_gate(key, succeeded(self.gates[key], call.token))

    async def unavailable(self, call: Call, job: str, now: int, retry_after: int) -> Failure:
        key = gate_keys(call.service, call.region)[-1]
        failure = failed(self.gates.get(key, Gate()), call.token, job, now, retry_after)
        self._set_gate(key, failure.gate)
        return failure

    def _forget_probe(self, token: str) -> None:
        for key, gate in self.gates.items():
            self.gates[key] = forget_probe(gate, token)

    def _set_gate(self, key: str, gate: Gate) -> None:
        if gate == Gate():
            self.gates.pop(key, None)
            self._wake(len(self.idle))
        else:
            self.gates[key] = gate

    async def learn_load(self, service: str, model: str, duration: int) -> None:
        self.loads.learn(duration, service, model)

    # --- looking -----------------------------------------------------------------------------
    async def standing(self, job: str, now: int) -> Standing | None:
        self._move_due(now)
        return views.standing(self, job, now)

    async def promotable(self, now: int, limit: int) -> list[tuple[str, int]]:
        self._move_due(now)
        return views.promotable(self, now, limit)

    async def differing(self, truth: Sequence[Entry]) -> list[tuple[str, Entry | None]]:
        return [
            (entry.id, self.waiting.get(entry.id))
            for entry in truth
            if self._held_revs.get(entry.id) != entry.rev
            and not _same(self.waiting.get(entry.id), entry)
        ]

    async def stats(self) -> Stats:
        return views.stats(self)

    async def walk(self, page: int) -> AsyncIterator[list[Entry]]:
        entries = list(self.waiting.values())
        for start in range(0, len(entries), page):
            yield entries[start : start + page]

    async def has_lane(self, lane: str) -> bool:
        desk = self.desks.get(lane.split("|", 1)[0])
        return desk is None or lane in desk.lanes or len(desk.lanes) < MOST_LANES

    def is_delayed(self, job: str) -> bool:
        return job in self._delayed_jobs

    def delayed_entries(self) -> Iterable[Entry]:
        return (self.waiting[job] for job in self._delayed_jobs)

    # --- rebuild -----------------------------------------------------------------------------
    async def begin(self, epoch: str) -> None:
        self._clear(epoch)

    async def load(self, entries: Sequence[Entry], held: Sequence[Held]) -> None:
        for entry in entries:
            if self._is_news(entry):
                self.waiting[entry.id] = entry
        for each in held:
            if each.token not in self._freed:
                self.held[each.token] = each
                self._held_revs[each.entry.id] = each.entry.rev

    async def load_slots(self, rows: Sequence[tuple[Slot, str]]) -> None:
        for slot, token in rows:
            if slot.until or token not in self._freed:
                self.pools.hold(slot, token)

    async def load_starts(self, starts: Sequence[Start]) -> None:
        for start in starts:
            service = self.catalog.service(start.service)
            desk = self.desks.setdefault(start.service, Desk(service))
            if desk.fair:
                desk.restart(start.rank, start.user, start.job, start.at)

    async def open(self, epoch: str, now: int) -> bool:
        if epoch != self._epoch:
            return False
        entries = sorted(self.waiting.values(), key=lambda entry: (entry.score, entry.id))
        self.waiting, self._loading = {}, False
        self._gone, self._freed = {}, set()
        self.gates = {
            key: gate if gate.probe in self.held else forget_probe(gate, gate.probe)
            for key, gate in self.gates.items()
        }
        for held in self.held.values():
            self._desk(held.entry).resume(held.entry)
        for entry in entries:
            self._add(entry, now)
        self._wake(len(self.idle))
        return True

    async def sync_slots(self, pool: str, rows: Sequence[tuple[Slot, str]], now: int) -> int:
        known = self.pools.get(pool)
        if known is None:
            return 0
        known.expire(now)
        truth = {slot.n: (slot, token) for slot, token in rows}
        corrected = 0
        for n, token in list(known.held.items()):
            held = self.held.get(token)
            proposed = held is not None and token not in self._verified
            if n not in truth and not proposed:
                self.pools.forget(Slot(pool, n), token)
                corrected += 1
        for n, (slot, token) in truth.items():
            if known.held.get(n) != token:
                self.pools.hold(slot, token)
                corrected += 1
        if corrected:
            self._wake(corrected)
        return corrected

    def tidy(self) -> None:
        for desk in self.desks.values():
            desk.tidy()


def gate_keys(service: str, region: str | None) -> tuple[str, ...]:
    """The service, then its region: the last one is where a failure is counted."""
    return (service,) if region is None else (service, f"{service}@{region}")


def _same(known: Entry | None, truth: Entry) -> bool:
    """Cost is only an estimate and the announcement only a note; the rest decides the order."""
    return known is not None and known._replace(cost=0, announced=0) == truth._replace(
        cost=0, announced=0
    )
