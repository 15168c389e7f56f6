"""The claim: chooses the next jobs for one worker, by priority, fairness and model affinity, and
the region of each job: the least loaded one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from fairlane.index.index import RESERVATION_MICROSECONDS, Proposal
from fairlane.index.memory.concurrency_limits import NO_CHOICE, SlotChoice, SlotPool
from fairlane.index.memory.flows import Flow
from fairlane.index.memory.service_queue import Candidates, LaneQueue, ServiceQueue
from fairlane.index.memory.wakeups import serves
from fairlane.model.construct import maker
from fairlane.model.lease import Slot
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Executor, Service, is_service_pool
from fairlane.model.tier import Tiers
from fairlane.model.worker import Loaded, Worker
from fairlane.policy.affinity import (
    MAX_COMPARED_MODELS,
    MAX_MODEL_SLOTS,
    Pick,
    may_wait,
    most_wanted,
    residency,
    stays,
)
from fairlane.policy.aging import RESERVE_AFTER_PATIENCES
from fairlane.policy.order import Candidate, Choice, QueueHeads, between_services, choose
from fairlane.policy.shares import ShareKind, granted, may_jump
from fairlane.units import SECOND

if TYPE_CHECKING:
    from fairlane.index.memory.memory import MemoryIndex

heads, proposal = maker(QueueHeads), maker(Proposal)


class Reservation(NamedTuple):
    """The slot reservation for the one oldest job that has waited more than 4 × its patience: the
    pools whose last free slot is kept for it. `until` is when the reservation expires."""

    since: int
    job: str
    pools: frozenset[str]
    until: int


class ServiceView:
    """The pools and queues of one service, in one region, that this worker can use."""

    def __init__(
        self,
        service_queue: ServiceQueue,
        pools: list[SlotPool],
        queues: list[LaneQueue],
        region: str | None = None,
        number: int = 0,
    ) -> None:
        self.service_queue, self.pools, self.queues = service_queue, pools, queues
        self.region, self.number = region, number
        self.group = [self]
        """The views of the same service, in all regions."""
        self.candidates: list[Candidates | None] = [None] * len(queues)
        self._heads: QueueHeads | None = None

    def heads(self, now: int, tiers: Tiers) -> QueueHeads:
        """The best candidate of each kind."""
        if self._heads is not None:
            return self._heads
        found: list[Candidate | None] = [None, None, None, None]
        candidates = self.candidates
        for i, queue in enumerate(self.queues):
            pair = candidates[i]
            if pair is None:
                rank = queue.rank
                if rank < 0:
                    pair = queue.candidates(now, (), 0)
                else:
                    pair = queue.candidates(now, tiers.thresholds[rank], tiers.patience[rank])
                candidates[i] = pair
            for candidate in pair:
                if candidate is not None:
                    known = found[candidate.kind]
                    if known is None or candidate < known:
                        found[candidate.kind] = candidate
        self._heads = heads(tuple(found))
        return self._heads

    def touched(self, queue: LaneQueue, rank: int) -> None:
        """Discard the cached candidates of this queue and of all queues of this rank. A user's
        fair-share counter and ageing clock are shared by all lanes of a service and tier."""
        self._heads = None
        candidates = self.candidates
        for i, each in enumerate(self.queues):
            if each is queue or each.rank == rank:
                candidates[i] = None

    @property
    def model_pool(self) -> SlotPool | None:
        """The pool whose slots remember their models: the most specific one of a called service.
        None if the worker remembers its model."""
        service = self.service_queue.service
        if service.executor is not Executor.HTTP or not self.service_queue.keeps_models:
            return None
        own = [pool for pool in self.pools if is_service_pool(pool.name)]
        return own[-1] if own and own[-1].limit <= MAX_MODEL_SLOTS else None

    def load(self) -> tuple[float, int]:
        """The outstanding work of the region relative to its limit: the taken slots, and the
        waiting jobs that may run only there; 0 without a limit. Ties go by the view's number."""
        pool_name = f"svc:{self.service_queue.service.name}@{self.region}"
        pool = next((pool for pool in self.pools if pool.name == pool_name), None)
        if pool is None:
            return 0.0, self.number
        bound = sum(queue.count for queue in self.queues if queue.lane.regions == (self.region,))
        return (len(pool.held) + bound) / pool.limit, self.number

    def has_room(self, hold: Reservation | None) -> bool:
        for pool in self.pools:
            reserved = 1 if hold is not None and pool.name in hold.pools else 0
            if pool.limit - len(pool.held) <= reserved:
                return False
        return True


class ClaimRound:
    """The state of one claim: the services that the worker can use, and the model it has loaded."""

    def __init__(self, index: MemoryIndex, worker: Worker, loaded: Loaded, now: int) -> None:
        self.index, self.worker, self.loaded, self.now = index, worker, loaded, now
        self.views = self._views()

    def next(self) -> Proposal | None:
        """Hand out the best job, or return None if no job can start."""
        while True:
            best = self._best()
            if best is None:
                return None
            view, choice = self._with_affinity(*best)
            fresh = choice.candidate.kind is ShareKind.FRESH
            flow = view.service_queue.flows[choice.candidate.flow]
            if flow.cap and self.index.pools.of_user(flow.user, flow.cap).spare <= 0:
                self._park(view, flow)
                continue
            # A fresh job that needs the loaded model replaces the best choice: that one is counted.
            self._count(*(best if fresh else (view, choice)))
            return self._grant(view, flow, in_turn=fresh and choice is best[1])

    # --- choosing ----------------------------------------------------------------------------
    def _views(self) -> list[ServiceView]:
        views: list[ServiceView] = []
        for name, service_queue in self.index.service_queues.items():
            if not service_queue.lanes:
                continue
            queues = [
                queue
                for queue in service_queue.queues.values()
                if serves(self.index, self.worker, queue)
            ]
            group: list[ServiceView] = []
            for region in in_file_order(service_queue.service, self.worker) if queues else ():
                if not self.index.admits(name, region, self.now):
                    continue
                here = [queue for queue in queues if queue.lane.allows(region)]
                if here:
                    pools = self.index.slot_pools(name, region, self.now)
                    view = ServiceView(service_queue, pools, here, region, len(views))
                    group.append(view)
                    view.group = group
                    views.append(view)
        return views

    def _best(self) -> tuple[ServiceView, Choice] | None:
        """The best job. In several regions it has equal keys: the least loaded region gets it."""
        best: tuple[ServiceView, Choice] | None = None
        best_key: tuple[int, int, str] | None = None
        hold = self.index.current_hold(self.now)
        if self.worker.regions:
            self.views.sort(key=ServiceView.load)
        for view in self.views:
            if not view.has_room(hold) and not self._is_held_for(view, hold):
                self._consider_hold(view)
                hold = self.index.current_hold(self.now)
                continue
            service_queue = view.service_queue
            choice = choose(self._heads(view), service_queue.credits, service_queue.service.shares)
            if choice is None:
                continue
            if len(self.views) == 1:
                return view, choice
            key = between_services(choice)
            if best_key is None or key < best_key:
                best, best_key = (view, choice), key
        return best

    def _heads(self, view: ServiceView) -> QueueHeads:
        return view.heads(self.now, self.index.catalog.tiers)

    def _with_affinity(self, view: ServiceView, choice: Choice) -> tuple[ServiceView, Choice]:
        service_queue, candidate = view.service_queue, choice.candidate
        if candidate.kind is ShareKind.SKIP or not service_queue.keeps_models:
            return view, choice
        wanted = service_queue.flows[candidate.flow].model
        pool = view.model_pool if wanted or self.loaded.model else None
        loaded = self.loaded if pool is None else pool.loaded_for(wanted)
        if wanted == loaded.model:
            return view, choice
        warm = self._warm(loaded.model, view if pool else None) if loaded.model else None
        may_load = (
            wanted
            and candidate.kind is ShareKind.FRESH
            and service_queue.fair
            and self.index.counts_users
        )
        if warm is None and not may_load:
            return view, choice
        pick, service = self._pick(view, candidate), service_queue.service
        if warm is not None:
            warm_view, (*_, rank, kind) = warm
            if stays(service.affinity, service.batch_size, loaded, pick, rank, self.now):
                return warm_view, Choice(warm[1], jumped=kind is not ShareKind.FRESH)
            if rank <= pick.rank:
                return view, choice
        if may_load and may_wait(service.affinity, pick):
            return view, self._most_wanted(view, choice, wanted, pick)
        return view, choice

    def _pick(self, view: ServiceView, candidate: Candidate) -> Pick:
        entry, service = self._head_entry(view, candidate), view.service_queue.service
        return Pick(
            entry.rank,
            self.index.catalog.tiers.patience[entry.rank],
            self.now - candidate.since,
            self.index.model_times.load_time(
                service.name, entry.model, round(service.model_load * SECOND)
            ),
            entry.cost,
            service.limit == 1,
        )

    def _most_wanted(self, view: ServiceView, up: Choice, own: str, pick: Pick) -> Choice:
        """The first job in fair order that needs the model most users of that tier wait for. A job
        past its patience is not delayed for a later job of the same user."""
        queues = [queue for queue in view.queues if queue.rank == pick.rank]
        users = Counter[str]()
        if any(len(queue.wanted) > MAX_COMPARED_MODELS for queue in queues):
            return up
        for queue in queues:
            users.update(queue.wanted)
        model = most_wanted(users, view.service_queue.loaded_since(self.now - residency(pick)), own)
        if model == own:
            return up
        flows = view.service_queue.flows
        best = min(each for queue in queues if (each := queue.warm(model)) is not None)
        is_late = self.now - up.candidate.score >= pick.patience
        if is_late and flows[best.flow].user == flows[up.candidate.flow].user:
            return up
        return Choice(best, jumped=False)

    def _warm(self, model: str, called: ServiceView | None) -> tuple[ServiceView, Candidate] | None:
        """The best job for this model, which is loaded in a slot of a called service, or (None) in
        the memory of the worker."""
        hold = self.index.current_hold(self.now)
        best: tuple[ServiceView, Candidate] | None = None
        for view in self.views if called is None else (called,):
            if not view.service_queue.keeps_models or not view.has_room(hold):
                continue
            if called is None and view.model_pool is not None:
                continue
            service_queue = view.service_queue
            for queue in view.queues:
                candidate = queue.warm(model)
                if candidate is None or (best is not None and best[1] <= candidate):
                    continue
                if may_jump(candidate.kind, service_queue.credits, service_queue.service.shares):
                    best = (view, candidate)
        return best

    def _head_entry(self, view: ServiceView, candidate: Candidate) -> Entry:
        return view.service_queue.flows[candidate.flow].line.head

    # --- reserving the last slot ---------------------------------------------------------------
    def _is_held_for(self, view: ServiceView, hold: Reservation | None) -> bool:
        """Whether the reservation is for this service's oldest job, and that job can start now."""
        if hold is None or not view.has_room(None):
            return False
        aged = self._heads(view).aged
        return aged is not None and self._head_entry(view, aged).id == hold.job

    def _consider_hold(self, view: ServiceView) -> None:
        aged = self._heads(view).aged
        if aged is None:
            return
        patience = self.index.catalog.tiers.patience[aged.rank]
        if self.now - aged.since < RESERVE_AFTER_PATIENCES * patience:
            return
        hold = self.index.current_hold(self.now)
        job = self._head_entry(view, aged).id
        if hold is None or aged.since < hold.since or job == hold.job:
            pools = frozenset(pool.name for pool in view.pools)
            self.index.hold = Reservation(
                aged.since, job, pools, self.now + RESERVATION_MICROSECONDS
            )

    # --- granting ------------------------------------------------------------------------------
    def _count(self, view: ServiceView, choice: Choice) -> None:
        service_queue, kind = view.service_queue, choice.candidate.kind
        service_queue.credits = granted(
            service_queue.credits, kind, service_queue.service.shares, jumped=choice.jumped
        )

    def _grant(self, view: ServiceView, flow: Flow, *, in_turn: bool) -> Proposal:
        index, service_queue, now = self.index, view.service_queue, self.now
        entry = index.waiting.pop(flow.line.pop().id)
        token = index.new_token()
        chosen = self._load(view, entry.model) if entry.model else NO_CHOICE
        slots: tuple[Slot, ...] = ()
        if view.pools or flow.cap:
            own = [index.pools.of_user(flow.user, flow.cap)] if flow.cap else []
            slots = index.pools.take([*view.pools, *own], token, now, chosen)
        service_queue.started(flow, entry, now, in_turn=in_turn)
        index.hand_out(token, entry, slots, view.region, now)
        self._touched(view, flow.queue, entry.rank)
        return proposal((token, entry, slots, view.region))

    def _load(self, view: ServiceView, model: str) -> SlotChoice:
        """Note the model that a slot, or the worker, has from now on. Returns the chosen slot."""
        service_queue, pool = view.service_queue, view.model_pool
        n = pool.slot_for(model) if pool is not None else 0
        before = pool.loaded(n) if pool is not None else self.loaded
        after, name = before.after(model, self.now), service_queue.service.name
        if service_queue.keeps_models:
            self.index.last_models[name] = after
            if model != before.model:
                service_queue.loads.append((self.now, model))
                self.index.model_times.count_load(name, model)
        if pool is None:
            self.loaded = after
        else:
            pool.models[n] = after
        return SlotChoice(pool, n)

    def _park(self, view: ServiceView, flow: Flow) -> None:
        self.index.park(view.service_queue, flow)
        self._touched(view, flow.queue, flow.queue.rank)

    def _touched(self, view: ServiceView, queue: LaneQueue, rank: int) -> None:
        """The queue has changed, and the breaker of the service or region may wait for a probe."""
        for each in view.group:
            each.touched(queue, rank)
        if self.index.breakers:
            name = view.service_queue.service.name
            self.views = [
                each
                for each in self.views
                if each.service_queue is not view.service_queue
                or self.index.admits(name, each.region, self.now)
            ]


def in_file_order(service: Service, worker: Worker) -> Iterable[str | None]:
    """The regions in which this worker can run jobs of this service."""
    if not worker.regions:
        return (worker.region,)
    if not service.regions:
        return (None,)
    return (region for region in service.regions if region in worker.regions)
