"""One claim: the next n jobs for one worker.

The candidates of every service are kept between picks and looked at again only where a pick has
touched them, so a batch costs little more than its first job."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from fairlane.index.index import Proposal
from fairlane.index.memory.desk import Candidates, Desk, Queue
from fairlane.index.memory.flows import Flow
from fairlane.index.memory.pools import SlotPool
from fairlane.index.memory.wake import serves
from fairlane.model.entry import Entry
from fairlane.model.lease import Slot
from fairlane.model.make import maker
from fairlane.model.tier import Tiers
from fairlane.model.worker import Loaded, Worker
from fairlane.policy.affinity import MOST_MODELS, Pick, may_wait, most_wanted, residency, stays
from fairlane.policy.aging import HOLD_AFTER
from fairlane.policy.order import Candidate, Choice, Heads, between_services, choose
from fairlane.policy.shares import Kind, granted, may_jump

if TYPE_CHECKING:
    from fairlane.index.memory.memory import MemoryIndex

HOLD_FOR = 30_000_000
"""A reservation ends this long after the last worker that could serve it has asked."""


heads, proposal = maker(Heads), maker(Proposal)


class Hold(NamedTuple):
    """The single oldest job past 4 × its patience, and the pools whose last slot is kept for it."""

    since: int
    job: str
    pools: frozenset[str]
    until: int


class View:
    """One service as this worker sees it."""

    def __init__(self, desk: Desk, pools: list[SlotPool], queues: list[Queue]) -> None:
        self.desk, self.pools, self.queues = desk, pools, queues
        self.candidates: list[Candidates | None] = [None] * len(queues)
        self._heads: Heads | None = None

    def heads(self, now: int, tiers: Tiers) -> Heads:
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

    def touched(self, queue: Queue, rank: int) -> None:
        """A user's counter and clock are shared by all lanes of a service and tier."""
        self._heads = None
        candidates = self.candidates
        for i, each in enumerate(self.queues):
            if each is queue or each.rank == rank:
                candidates[i] = None

    def has_room(self, hold: Hold | None) -> bool:
        for pool in self.pools:
            reserved = 1 if hold is not None and pool.name in hold.pools else 0
            if pool.limit - len(pool.held) <= reserved:
                return False
        return True


class Round:
    def __init__(self, index: MemoryIndex, worker: Worker, loaded: Loaded, now: int) -> None:
        self.index, self.worker, self.loaded, self.now = index, worker, loaded, now
        self.views = self._views()

    def next(self) -> Proposal | None:
        """Hand out the best job there is now."""
        while True:
            best = self._best()
            if best is None:
                return None
            view, choice = self._with_affinity(*best)
            fresh = choice.candidate.kind is Kind.FRESH
            flow = view.desk.flows[choice.candidate.flow]
            if flow.cap and self.index.pools.of_user(flow.user, flow.cap).spare <= 0:
                self._park(view, flow)
                continue
            # fresh work that keeps its model goes in the place of what is up, as if that had gone
            self._count(*(best if fresh else (view, choice)))
            return self._grant(view, flow, in_turn=fresh and choice is best[1])

    # --- choosing ----------------------------------------------------------------------------
    def _views(self) -> list[View]:
        views = []
        for name, desk in self.index.desks.items():
            if not desk.lanes or not self.index.admits(name, self.worker.region, self.now):
                continue
            queues = [
                queue for queue in desk.queues.values() if serves(self.index, self.worker, queue)
            ]
            if queues:
                pools = self.index.slot_pools(name, self.worker.region, self.now)
                views.append(View(desk, pools, queues))
        return views

    def _best(self) -> tuple[View, Choice] | None:
        best: tuple[View, Choice] | None = None
        best_key: tuple[int, int, str] | None = None
        hold = self.index.current_hold(self.now)
        for view in self.views:
            if not view.has_room(hold) and not self._is_held_for(view, hold):
                self._consider_hold(view)
                hold = self.index.current_hold(self.now)
                continue
            desk = view.desk
            choice = choose(self._heads(view), desk.credits, desk.service.shares)
            if choice is None:
                continue
            if len(self.views) == 1:
                return view, choice
            key = between_services(choice)
            if best_key is None or key < best_key:
                best, best_key = (view, choice), key
        return best

    def _heads(self, view: View) -> Heads:
        return view.heads(self.now, self.index.catalog.tiers)

    def _with_affinity(self, view: View, choice: Choice) -> tuple[View, Choice]:
        model, desk = self.loaded.model, view.desk
        candidate = choice.candidate
        if candidate.kind is Kind.SKIP or not desk.keeps_models:
            return view, choice
        wanted = desk.flows[candidate.flow].model
        if wanted == model:
            return view, choice
        warm = self._warm(model) if model else None
        may_load = wanted and candidate.kind is Kind.FRESH and desk.fair and self.index.counts_users
        if warm is None and not may_load:
            return view, choice
        pick, service = self._pick(view, candidate), desk.service
        if warm is not None:
            warm_view, (*_, rank, kind) = warm
            if stays(service.affinity, service.batch_size, self.loaded, pick, rank, self.now):
                return warm_view, Choice(warm[1], jumped=kind is not Kind.FRESH)
            if rank <= pick.rank:
                return view, choice
        if may_load and may_wait(service.affinity, pick):
            return view, self._most_wanted(view, choice, wanted, pick)
        return view, choice

    def _pick(self, view: View, candidate: Candidate) -> Pick:
        entry, service = self._head_entry(view, candidate), view.desk.service
        return Pick(
            entry.rank,
            self.index.catalog.tiers.patience[entry.rank],
            self.now - candidate.since,
            self.index.loads.get(service.name, entry.model),
            entry.cost,
            service.limit == 1,
        )

    def _most_wanted(self, view: View, up: Choice, own: str, pick: Pick) -> Choice:
        """The first in fair order that needs the model most users of that tier wait for. Nobody
        waits longer than their patience for later work of their own."""
        queues = [queue for queue in view.queues if queue.rank == pick.rank]
        users = Counter[str]()
        if any(len(queue.wanted) > MOST_MODELS for queue in queues):
            return up
        for queue in queues:
            users.update(queue.wanted)
        model = most_wanted(users, view.desk.loaded_since(self.now - residency(pick)), own)
        if model == own:
            return up
        flows = view.desk.flows
        best = min(each for queue in queues if (each := queue.warm(model)) is not None)
        is_late = self.now - up.candidate.score >= pick.patience
        if is_late and flows[best.flow].user == flows[up.candidate.flow].user:
            return up
        return Choice(best, jumped=False)

    def _warm(self, model: str) -> tuple[View, Candidate] | None:
        hold = self.index.current_hold(self.now)
        best: tuple[View, Candidate] | None = None
        for view in self.views:
            if not view.desk.keeps_models or not view.has_room(hold):
                continue
            desk = view.desk
            for queue in view.queues:
                candidate = queue.warm(model)
                if candidate is None or (best is not None and best[1] <= candidate):
                    continue
                if may_jump(candidate.kind, desk.credits, desk.service.shares):
                    best = (view, candidate)
        return best

    def _head_entry(self, view: View, candidate: Candidate) -> Entry:
        return view.desk.flows[candidate.flow].line.head

    # --- reserving the last slot ---------------------------------------------------------------
    def _is_held_for(self, view: View, hold: Hold | None) -> bool:
        """Whether the reservation is for this service's own head, and it can go now."""
        if hold is None or not view.has_room(None):
            return False
        aged = self._heads(view).aged
        return aged is not None and self._head_entry(view, aged).id == hold.job

    def _consider_hold(self, view: View) -> None:
        aged = self._heads(view).aged
        if aged is None:
            return
        patience = self.index.catalog.tiers.patience[aged.rank]
        if self.now - aged.since < HOLD_AFTER * patience:
            return
        hold = self.index.current_hold(self.now)
        job = self._head_entry(view, aged).id
        if hold is None or aged.since < hold.since or job == hold.job:
            pools = frozenset(pool.name for pool in view.pools)
            self.index.hold = Hold(aged.since, job, pools, self.now + HOLD_FOR)

    # --- handing out ---------------------------------------------------------------------------
    def _count(self, view: View, choice: Choice) -> None:
        desk, kind = view.desk, choice.candidate.kind
        desk.credits = granted(desk.credits, kind, desk.service.shares, jumped=choice.jumped)

    def _grant(self, view: View, flow: Flow, *, in_turn: bool) -> Proposal:
        index, desk, now = self.index, view.desk, self.now
        entry = index.waiting.pop(flow.line.pop().id)
        token = index.new_token()
        slots: tuple[Slot, ...] = ()
        if view.pools or flow.cap:
            own = [index.pools.of_user(flow.user, flow.cap)] if flow.cap else []
            slots = index.pools.take([*view.pools, *own], token, now)
        desk.started(flow, entry, now, in_turn=in_turn)
        if flow.model not in ("", self.loaded.model):
            desk.loads.append((now, flow.model))
        index.hand_out(token, entry, slots, self.worker.region, now)
        self.loaded = self.loaded.after(entry.model, now)
        self._touched(view, flow.queue, entry.rank)
        return proposal((token, entry, slots))

    def _park(self, view: View, flow: Flow) -> None:
        self.index.park(view.desk, flow)
        self._touched(view, flow.queue, flow.queue.rank)

    def _touched(self, view: View, queue: Queue, rank: int) -> None:
        view.touched(queue, rank)
        if self.index.gates and not self.index.admits(
            view.desk.service.name, self.worker.region, self.now
        ):
            self.views.remove(view)
