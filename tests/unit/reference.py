"""The order of service once more, as plainly as possible: no heaps, no caches, no flows that are
kept up to date. Every claim looks at every waiting job again. Slow, and easy to believe.

It shares nothing with fairlane.policy and fairlane.index but the nouns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

from fairlane.model.catalog import Catalog
from fairlane.model.job import Band
from fairlane.model.lease import Slot
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Affinity, Fairness, Service
from fairlane.model.step import Lane
from fairlane.model.worker import Loaded, Worker

SKIP, FRONT, AGED, FRESH = range(4)
FIRST_LOAD = 3_500_000


@dataclass
class Account:
    counter: int = 0
    refund: int = 0
    running: int = 0
    starts: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class Flow:
    """Jobs that stand in one line, the first first, and where the first stands among others."""

    name: str
    jobs: list[Entry]
    order: int
    since: int

    @property
    def place(self) -> tuple[int, int, str]:
        """Between flows of one user the older head goes first."""
        return self.order, self.jobs[0].score, self.name

    @property
    def queue(self) -> tuple[str, Band, int]:
        head = self.jobs[0]
        return head.lane, head.band, head.rank if head.band is Band.TIER else -1


class Candidate(NamedTuple):
    level: int
    order: int
    score: int
    since: int
    name: str
    rank: int
    kind: int
    service: str
    job: Entry
    jumped: bool = False


View = tuple[str, Worker, list[Flow]]
"""A service, the worker as if it were in one region only, and what it can run there."""


class Reference:
    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.line: dict[str, Entry] = {}
        self.later: list[tuple[int, str, Entry]] = []
        self.running: dict[str, Entry] = {}
        self.slots: dict[tuple[str, int], tuple[str, int]] = {}
        self.accounts: dict[tuple[str, int, str], Account] = {}
        self.virtual: dict[tuple[str, int], int] = {}
        self.credit: dict[str, list[int]] = {}
        self.loads: dict[str, list[tuple[int, str]]] = {}
        self.parked: set[str] = set()
        self.hold: tuple[int, str, set[str], int] | None = None

    # --- coming and going ----------------------------------------------------------------------
    def put(self, entry: Entry, now: int) -> None:
        if entry.ready_at > now:
            self.later.append((entry.ready_at, entry.id, entry))
            return
        service = self._service(entry)
        self.credit.setdefault(service.name, [4000, 4000, 4000])
        if service.fairness is Fairness.USER and entry.band is Band.TIER:
            account = self._account(entry)
            if not self._in_line(entry):
                virtual = self.virtual.get((service.name, entry.rank), 0)
                if account.counter <= virtual:
                    account.counter = self.virtual[service.name, entry.rank] = virtual + 1
        self.line[entry.id] = entry

    def take(self, entry: Entry) -> None:
        self.later = [each for each in self.later if each[1] != entry.id]
        if self.line.pop(entry.id, None):
            self.parked &= {self._name(each) for each in self.line.values()}

    def free(self, token: str, actual: int | None) -> None:
        """A lease ended; None = it never was one."""
        entry = self.running.pop(token)
        self.slots = {
            slot: (owner, until)
            for slot, (owner, until) in self.slots.items()
            if owner != token or (until and actual is not None)
        }
        self.parked = {name for name in self.parked if not name.endswith(f"|{entry.user}")}
        if self._service(entry).fairness is not Fairness.USER:
            return
        account = self._account(entry)
        account.running -= 1
        actual = 0 if actual is None else actual
        if entry.band is not Band.SKIP:
            account.counter += max(0, actual - entry.cost)
            account.refund += max(0, entry.cost - actual)

    # --- choosing ------------------------------------------------------------------------------
    def claim(
        self, worker: Worker, loaded: Loaded, tokens: Sequence[str], now: int
    ) -> list[tuple[str, tuple[Slot, ...], str | None]]:
        """One job for each of these tokens, while there are any: (job, slots, region)."""
        due = sorted(each[:2] for each in self.later if each[0] <= now)
        for _, name in due:
            (entry,) = [each[2] for each in self.later if each[1] == name]
            self.later = [each for each in self.later if each[1] != name]
            self.put(entry._replace(ready_at=0), now)
        self.slots = {s: o for s, o in self.slots.items() if not o[1] or o[1] > now}
        found = []
        for token in tokens:
            picked = self._pick(worker, loaded, now)
            if picked is None:
                break
            goes, up, here = picked
            self._earn(up if goes.kind == FRESH else goes)
            slots = self._start(goes, here, token, now, in_turn=goes == up)
            found.append((goes.job.id, slots, here.region))
            if goes.job.model not in ("", loaded.model) and self._keeps(goes.service):
                self.loads.setdefault(goes.service, []).append((now, goes.job.model))
            loaded = loaded.after(goes.job.model, now)
        return found

    def _pick(
        self, worker: Worker, loaded: Loaded, now: int
    ) -> tuple[Candidate, Candidate, Worker] | None:
        """Who goes, in whose place (the one that is up, unless a model is kept), and where."""
        while True:
            views = self._views(worker, now)
            ups = []
            for n, (name, here, flows) in enumerate(views):
                if flows and self._open_for(name, flows, here, now):
                    up = self._up(name, flows, now)
                    ups.append((self._between(up), n, up, here))
            if not ups:
                return None
            _, _, up, here = min(ups)
            best, here = self._keeps_model(up, here, views, loaded, now)
            cap = best.job.cap
            if not cap or self._spare(f"user:{best.job.user}", cap) > 0:
                return best, up, here
            self.parked.add(best.name)
            if self.hold and self.hold[1] == best.job.id:
                self.hold = None

    def _views(self, worker: Worker, now: int) -> list[View]:
        """Each service in each region that the worker reaches, the least loaded first."""
        found: list[tuple[float, int, View]] = []
        for name in self.credit:
            regions = self.catalog.service(name).regions
            reached: list[str | None] = [each for each in regions if each in worker.regions]
            if not worker.regions:
                reached = [worker.region]
            elif not regions:
                reached = [None]
            for region in reached:
                here = replace(worker, region=region, regions=())
                flows = self._flows(name, here, now)
                load = 0.0
                if worker.regions and region in regions and regions[region].limit:
                    limit = regions[region].limit
                    held = limit - self._spare(f"svc:{name}@{region}", limit)
                    only = [
                        each
                        for each in self.line.values()
                        if each.lane.split("|")[:2] == [name, region] and self._may_run(here, each)
                    ]
                    load = (held + len(only)) / limit
                found.append((load, len(found), (name, here, flows)))
        return [view for _, _, view in sorted(found, key=lambda each: each[:2])]

    def _flows(self, service: str, worker: Worker, now: int) -> list[Flow]:
        """Everything of this service that the worker covers and that is not parked."""
        lines: dict[str, list[Entry]] = {}
        if self.catalog.service(service).paused:
            return []
        for entry in self.line.values():
            if entry.lane.startswith(f"{service}|") and self._may_run(worker, entry):
                name = self._name(entry)
                if name not in self.parked:
                    lines.setdefault(name, []).append(entry)
        return [self._flow(name, jobs) for name, jobs in lines.items()]

    def _may_run(self, worker: Worker, entry: Entry) -> bool:
        tied = worker.tiers is not None and entry.band is Band.TIER
        if tied and self.catalog.tiers.names[entry.rank] not in (worker.tiers or ()):
            return False
        return worker.covers(Lane.parse(entry.lane))

    def _flow(self, name: str, jobs: list[Entry]) -> Flow:
        jobs.sort(key=lambda entry: (entry.score, entry.id))
        head = jobs[0]
        if self._service(head).fairness is not Fairness.USER or head.band is not Band.TIER:
            return Flow(name, jobs, head.score, head.score)
        account = self._account(head)
        others = [at for at, started in account.starts if started != head.id]
        return Flow(name, jobs, account.counter, max([head.score, *others]))

    def _up(self, service: str, flows: list[Flow], now: int) -> Candidate:
        """Who is next in one service, by the shares."""
        best: dict[int, Candidate] = {}
        for queue in {flow.queue for flow in flows}:
            for each in self._candidates(service, [f for f in flows if f.queue == queue], now):
                best[each.kind] = min(best.get(each.kind, each), each)
        skip, front, aged, fresh = (best.get(kind) for kind in range(4))
        may = [self._may(service, kind) for kind in range(3)]
        if skip and (len(best) == 1 or may[SKIP]):
            return skip._replace(jumped=len(best) > 1)
        if front and (fresh is None or may[FRONT]):
            return front._replace(jumped=fresh is not None)
        assert fresh is not None
        jumps = aged is not None and fresh.rank < aged.rank
        if aged is None or (
            aged.name != fresh.name and (fresh.level, fresh.since) <= (aged.level, aged.since)
        ):
            return fresh
        return aged._replace(jumped=jumps) if may[AGED] or not jumps else fresh

    def _candidates(self, service: str, flows: list[Flow], now: int) -> list[Candidate]:
        first = min(flows, key=lambda flow: flow.place)
        _, band, rank = first.queue
        if band is not Band.TIER:
            head = first.jobs[0]
            place = (first.order, head.score, first.since, first.name)
            bound = band is Band.FRONT and len(Lane.parse(head.lane).regions) == 1
            return [Candidate(int(bound), *place, rank, int(band), service, head)]
        found = [self._as_fresh(service, first)]
        oldest = min(flows, key=lambda flow: (flow.since, flow.jobs[0].score, flow.name))
        since = oldest.since
        passed = [to for to, after in self.catalog.tiers.thresholds[rank] if now - since >= after]
        level, patience = min([rank, *passed]), self.catalog.tiers.patience[rank]
        if patience and (level < rank or now - since >= patience):
            found.append(
                Candidate(
                    level,
                    since,
                    oldest.jobs[0].score,
                    since,
                    oldest.name,
                    rank,
                    AGED,
                    service,
                    oldest.jobs[0],
                )
            )
        return found

    def _as_fresh(self, service: str, flow: Flow) -> Candidate:
        rank = flow.queue[2]
        head = flow.jobs[0]
        kind = FRESH if rank >= 0 else int(head.band)
        place = (flow.order, head.score, flow.since, flow.name)
        return Candidate(rank, *place, rank, kind, service, head, jumped=kind != FRESH)

    def _may(self, service: str, kind: int) -> bool:
        credit, shares = self.credit[service], self.catalog.service(service).shares
        return kind == FRESH or shares[kind] >= 1000 or credit[kind] >= 1000

    def _between(self, up: Candidate) -> tuple[int, int, str]:
        if up.kind in {SKIP, FRONT}:
            return up.kind - 2, up.order, up.name
        return up.level, up.since, up.name

    def _keeps_model(
        self,
        up: Candidate,
        here: Worker,
        views: list[View],
        loaded: Loaded,
        now: int,
    ) -> tuple[Candidate, Worker]:
        service = self.catalog.service(up.service)
        rule, job, cost = service.affinity, up.job, up.job.cost
        if up.kind == SKIP or rule is Affinity.NONE or job.model == loaded.model:
            return up, here
        warm = self._warm(views, loaded.model, now) if loaded.model else []
        patience, age = self.catalog.tiers.patience[job.rank], now - up.since
        stay = FIRST_LOAD * 92 // 8
        if service.limit == 1:
            stay = min(stay, patience)
        if warm:
            best, _, there = min(warm)
            if rule is Affinity.BATCH:
                stays = loaded.streak < service.batch_size and age < patience
            elif cost > FIRST_LOAD * 20:
                stays = False
            elif now - loaded.since < stay:
                stays = True
            else:
                stays = job.rank >= best.rank and patience - age - FIRST_LOAD > cost
            if stays:
                return best, there
            if best.rank <= job.rank:
                return up, here
        counts = service.fairness is Fairness.USER and rule is Affinity.RESIDENCY
        is_early = up.kind == FRESH and age < patience
        if job.model and counts and is_early and cost <= FIRST_LOAD * 20:
            (flows,) = [each for name, at, each in views if (name, at) == (up.service, here)]
            wanted = self._most_wanted(up, flows, now - stay)
            own = wanted.job.user == job.user
            return (up if own and now - job.score >= patience else wanted), here
        return up, here

    def _warm(self, views: list[View], model: str, now: int) -> list[tuple[Candidate, int, Worker]]:
        """What could go next without another model, and where."""
        warm = []
        for n, (name, here, flows) in enumerate(views):
            if self._keeps(name) and self._room(name, here, now, held=True):
                ready = [flow for flow in flows if flow.jobs[0].model == model]
                for queue in {flow.queue for flow in ready}:
                    first = min((f for f in ready if f.queue == queue), key=lambda f: f.place)
                    each = self._as_fresh(name, first)
                    if self._may(name, each.kind):
                        warm.append((each, n, here))
        return warm

    def _most_wanted(self, up: Candidate, flows: list[Flow], lately: int) -> Candidate:
        """The first of those in the same tier who need the model that most users wait for, shared
        among the workers that have loaded it lately and this one."""
        peers = [flow for flow in flows if flow.queue[1:] == (Band.TIER, up.rank)]
        crowds: dict[str, list[Flow]] = {}
        for flow in peers:
            if flow.jobs[0].model:
                crowds.setdefault(flow.jobs[0].model, []).append(flow)
        loads = [model for at, model in self.loads.get(up.service, []) if at > lately]
        if len(crowds) > 256:
            return up

        def first(model: str) -> tuple[Fraction, bool, str]:
            users = Fraction(len(crowds[model]), loads.count(model) + 1)
            return -users, model != up.job.model, model

        best = min(crowds[min(crowds, key=first)], key=lambda flow: flow.place)
        return self._as_fresh(up.service, best)

    # --- slots ---------------------------------------------------------------------------------
    def _open_for(self, service: str, flows: list[Flow], worker: Worker, now: int) -> bool:
        """Room in every pool, or the last slots are reserved for this service's oldest. If not,
        that one may reserve them."""
        if self._room(service, worker, now, held=True):
            return True
        up = [each for queue in {flow.queue for flow in flows}
              for each in self._candidates(service, [f for f in flows if f.queue == queue], now)
              if each.kind == AGED]  # fmt: skip
        if not up:
            return False
        oldest, hold = min(up), self._hold(now)
        if hold and oldest.job.id == hold[1] and self._room(service, worker, now, held=False):
            return True
        stuck = now - oldest.since >= 4 * self.catalog.tiers.patience[oldest.rank]
        if stuck and (hold is None or oldest.since < hold[0] or oldest.job.id == hold[1]):
            pools = {pool.name for pool in self.catalog.pools(service, worker.region)}
            self.hold = (oldest.since, oldest.job.id, pools, now + 30_000_000)
        return False

    def _room(self, service: str, worker: Worker, now: int, *, held: bool) -> bool:
        hold = self._hold(now) if held else None
        return all(
            self._spare(pool.name, pool.limit) > (hold is not None and pool.name in hold[2])
            for pool in self.catalog.pools(service, worker.region)
        )

    def _hold(self, now: int) -> tuple[int, str, set[str], int] | None:
        if self.hold and (self.hold[3] <= now or self.hold[1] not in self.line):
            self.hold = None
        return self.hold

    def _spare(self, pool: str, limit: int) -> int:
        return limit - sum(name == pool for name, _ in self.slots)

    # --- handing out ---------------------------------------------------------------------------
    def _start(
        self, up: Candidate, worker: Worker, token: str, now: int, *, in_turn: bool
    ) -> tuple[Slot, ...]:
        entry = self.line.pop(up.job.id)
        pools = self.catalog.pools(up.service, worker.region)
        wanted = [
            (pool.name, pool.limit, now + pool.window if pool.window else 0) for pool in pools
        ]
        if entry.cap:
            wanted.append((f"user:{entry.user}", entry.cap, 0))
        slots = []
        for name, limit, until in wanted:
            n = next(n for n in range(1, limit + 1) if (name, n) not in self.slots)
            self.slots[name, n] = (token, until)
            slots.append(Slot(name, n, until))
        if self._service(entry).fairness is Fairness.USER:
            account = self._account(entry)
            if up.kind == FRESH and in_turn:
                key = (up.service, entry.rank)
                self.virtual[key] = max(self.virtual.get(key, 0), account.counter)
            if up.kind != SKIP:
                owed = min(account.refund, entry.cost)
                account.refund -= owed
                account.counter += entry.cost - owed
            account.starts.append((now, entry.id))
            account.running += 1
        self.running[token] = entry
        return tuple(slots)

    def _earn(self, up: Candidate) -> None:
        """Each class earns its share of what the classes before it leave."""
        credit, shares = self.credit[up.service], self.catalog.service(up.service).shares
        for kind in range(min(up.kind, AGED) + 1):
            credit[kind] = min(4000, credit[kind] + shares[kind])
        if up.kind != FRESH and up.jumped:
            credit[up.kind] = max(0, credit[up.kind] - 1000)

    # --- names ---------------------------------------------------------------------------------
    def _service(self, entry: Entry) -> Service:
        return self.catalog.service(entry.lane.split("|")[0])

    def _keeps(self, service: str) -> bool:
        return self.catalog.service(service).affinity is not Affinity.NONE

    def _name(self, entry: Entry) -> str:
        service, tier = self._service(entry), entry.band is Band.TIER
        model = entry.model if self._keeps(service.name) else ""
        own = entry.cap or (tier and service.fairness is Fairness.USER)
        rank = entry.rank if tier else -1
        band = f"{int(entry.band)}.{rank}.{entry.cap}"
        return f"{entry.lane}|{band}|{model}|{entry.user if own else ''}"

    def _account(self, entry: Entry) -> Account:
        return self.accounts.setdefault(
            (self._service(entry).name, entry.rank, entry.user), Account()
        )

    def _in_line(self, entry: Entry) -> bool:
        """Whether its user waits in this service and tier."""
        return any(
            each.user == entry.user
            and each.rank == entry.rank
            and each.band is Band.TIER
            and self._service(each) is self._service(entry)
            for each in self.line.values()
        )
