"""The fair queue of one service: its lanes and bands, its users' accounts and its share credits."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import islice

from fairlane.index.index import ACCOUNT_RETENTION_MICROSECONDS, MAX_REMEMBERED_LOADS
from fairlane.index.memory.flow_queue import NO_ENTRY
from fairlane.index.memory.flows import Account, Flow, Ranking, by_age, by_order
from fairlane.model.construct import maker
from fairlane.model.job import Band
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Affinity, Fairness, Service
from fairlane.model.step import Lane, service_of
from fairlane.policy.affinity import MAX_COMPARED_MODELS
from fairlane.policy.aging import Starts, level
from fairlane.policy.fairness import charge, correct, lift
from fairlane.policy.order import Candidate
from fairlane.policy.shares import FULL, ShareKind

Candidates = tuple[Candidate | None, Candidate | None]
"""(aged, other): the candidates of one queue for the next claim."""

MAX_CACHED_NAMES = 100_000

candidate = maker(Candidate)
KINDS = {Band.SKIP: ShareKind.SKIP, Band.FRONT: ShareKind.FRONT}


class LaneQueue:
    """The waiting jobs of one lane and band. A tier has a rank; skips and front retries have -1."""

    __slots__ = (
        "aged",
        "band",
        "by_model",
        "count",
        "fair",
        "flows",
        "key",
        "lane",
        "rank",
        "wanted",
    )

    def __init__(self, key: tuple[str, Band, int], *, ages: bool) -> None:
        self.key = key
        self.lane, self.band, self.rank = Lane.parse(key[0]), key[1], key[2]
        self.flows: dict[str, Flow] = {}
        self.count = 0
        self.fair = by_order(self.flows)
        self.aged = by_age(self.flows) if ages else None
        self.by_model: dict[str, Ranking] = {}
        self.wanted: dict[str, int] = {}  # how many flows need each model

    def flow_added(self, flow: Flow) -> None:
        """Count a flow that now has a waiting job and is not parked."""
        if flow.model:
            self.wanted[flow.model] = self.wanted.get(flow.model, 0) + 1

    def flow_removed(self, flow: Flow) -> None:
        if flow.model:
            self.wanted[flow.model] -= 1
            if not self.wanted[flow.model]:
                del self.wanted[flow.model]

    def push(self, flow: Flow) -> None:
        """Add the flow to the rankings with its present measures."""
        self.fair.push(flow)
        if self.aged is not None:
            self.aged.push(flow)
        if flow.model:
            ranking = self.by_model.get(flow.model)
            if ranking is None:
                ranking = self.by_model[flow.model] = by_order(self.flows, flow.model)
            ranking.push(flow)

    def candidates(
        self, now: int, thresholds: tuple[tuple[int, int], ...], patience: int
    ) -> Candidates:
        flow = self.fair.head()
        if flow is None:
            return None, None
        if self.band is not Band.TIER:
            # Front retries that may run in several regions go before those of one region.
            bound = self.band is Band.FRONT and self.lane.is_bound
            return None, self._candidate(flow, int(bound), KINDS[self.band])
        rank = self.rank
        fresh = self._candidate(flow, rank, ShareKind.FRESH)
        if not patience:
            return None, fresh
        if self.aged is not None:
            soonest = min(patience, thresholds[0][1]) if thresholds else patience
            if now - self.aged.floor() < soonest:
                return None, fresh
            flow = self.aged.head() or flow
        since = flow.since()
        reached = level(rank, now - since, thresholds)
        if reached < rank or now - since >= patience:
            score = flow.line.head.score
            return candidate((reached, since, score, since, flow.name, rank, ShareKind.AGED)), fresh
        return None, fresh

    def first(self, n: int, is_blocked: Callable[[Flow], bool]) -> Iterable[Flow]:
        """The flows that may be among the first n to be served. A flow is blocked if its user is at
        the running limit. Parked flows are not ranked: where fewer than n users are not blocked,
        all flows are returned."""
        if len(self.flows) <= n:
            return self.flows.values()
        in_order = self.fair.first(n, is_blocked)
        if len({flow.turn for flow in in_order if not is_blocked(flow)}) < n:
            return self.flows.values()
        others = [*islice(self.by_model.values(), MAX_COMPARED_MODELS)]
        if self.aged is not None:
            others.append(self.aged)
        found = {flow.name: flow for each in others for flow in each.first(n, is_blocked)}
        return (found | {flow.name: flow for flow in in_order}).values()

    def warm(self, model: str) -> Candidate | None:
        """The first flow in fair order that needs this model."""
        ranking = self.by_model.get(model)
        flow = ranking.head() if ranking is not None else None
        if flow is None:
            return None
        return self._candidate(flow, self.rank, KINDS.get(self.band, ShareKind.FRESH))

    def _candidate(self, flow: Flow, at_level: int, kind: ShareKind) -> Candidate:
        score = flow.line.head.score
        return candidate((at_level, flow.order(), score, flow.since(), flow.name, self.rank, kind))


class ServiceQueue:
    """All queued jobs of one service. `lanes` counts them by lane; `loads` are the last model loads
    (time, model). `_virtual` is the fair-share counter that service has reached, by rank."""

    def __init__(self, service: Service) -> None:
        self.credits = FULL
        self.queues: dict[tuple[str, Band, int], LaneQueue] = {}
        self.flows: dict[str, Flow] = {}
        self.lanes: dict[str, int] = {}
        self._accounts: dict[tuple[int, str], Account] = {}
        self._virtual: dict[int, int] = {}
        self.loads = deque[tuple[int, str]](maxlen=MAX_REMEMBERED_LOADS)
        self.configure(service)

    def orders_like(self, service: Service) -> bool:
        """Whether these settings leave the order of the waiting jobs unchanged."""
        return (service.fairness, service.affinity) == (
            self.service.fairness,
            self.service.affinity,
        )

    def configure(self, service: Service) -> None:
        self.service = service
        self.fair = service.fairness is Fairness.USER
        self.keeps_models = service.affinity is not Affinity.NONE
        self._names: dict[tuple[object, ...], str] = {}

    # --- arrivals and departures -------------------------------------------------------------
    def enter(self, entry: Entry) -> None:
        """Add a waiting job to its flow."""
        name = self.flow_name(entry)
        flow = self.flows.get(name)
        if flow is None:
            flow = self.flows[name] = self._flow(name, entry)
            flow.queue.flows[name] = flow
            flow.queue.flow_added(flow)
        lane, line = entry.lane, flow.line
        line.add(entry)
        if line.head is entry and not flow.parked:
            flow.queue.push(flow)
        if flow.account is not None:
            flow.account.waiting += 1
        flow.queue.count += 1
        self.lanes[lane] = self.lanes.get(lane, 0) + 1

    def remove(self, entry: Entry) -> None:
        """Remove a waiting job from its flow."""
        flow = self.flows[self.flow_name(entry)]
        was_head = flow.line.head.id == entry.id
        flow.line.remove(entry)
        self._left(flow, entry)
        if was_head and flow.line.head is not NO_ENTRY and not flow.parked:
            flow.queue.push(flow)

    def started(self, flow: Flow, entry: Entry, now: int, *, in_turn: bool) -> None:
        """The first job of the flow, already removed, was handed out. Its user is charged and the
        user's ageing clock restarts. If the job was served in fair order, the tier's virtual time
        advances to the user's counter."""
        if self.fair:
            account = self._account(entry.rank, entry.user)
            if in_turn:
                self._virtual[entry.rank] = max(self._virtual.get(entry.rank, 0), account.counter)
            if entry.band is not Band.SKIP:
                account.counter, account.refund = charge(
                    account.counter, account.refund, entry.cost
                )
            account.starts = account.starts.after(entry.id, now)
            account.running += 1
        self._left(flow, entry)

    def ended(self, entry: Entry, actual: int | None) -> None:
        """A job that was handed out has ended. `actual` is its cost (None = unknown)."""
        account = self._accounts.get((entry.rank, entry.user))
        if account is None:
            return
        account.running = max(0, account.running - 1)
        if actual is not None and entry.band is not Band.SKIP:
            account.counter, account.refund = correct(
                account.counter, account.refund, entry.cost, actual
            )

    def park(self, flow: Flow) -> None:
        flow.parked = True
        flow.queue.flow_removed(flow)

    def unpark(self, flow: Flow) -> None:
        flow.parked = False
        if flow.line.head is not NO_ENTRY:
            flow.queue.flow_added(flow)
            flow.queue.push(flow)

    def restart(self, rank: int, user: str, job: str, at: int) -> None:
        """Restore a user's ageing clock from the ledger."""
        account = self._account(rank, user)
        if at > account.starts.at:
            account.starts = account.starts.after(job, at)
        else:
            account.starts = Starts(
                account.starts.at, account.starts.job, max(at, account.starts.other_at)
            )

    def resume(self, entry: Entry) -> None:
        """Restore a running job from the ledger."""
        if self.fair:
            self._account(entry.rank, entry.user).running += 1

    def line_up(self, name: str, waiting: list[Entry], running: list[Entry]) -> ServiceQueue:
        """Fill this empty queue with the jobs of service `name`, oldest first."""
        for entry in running:
            if service_of(entry.lane) == name:
                self.resume(entry)
        for entry in sorted(waiting, key=lambda entry: (entry.score, entry.id)):
            if service_of(entry.lane) == name:
                self.enter(entry)
        return self

    def cleanup(self, now: int, patience: tuple[int, ...]) -> bool:
        """Remove accounts of users without jobs whose last start is too old to affect the order.
        Returns whether the queue is empty and can be removed."""
        self._names.clear()
        for (rank, user), account in list(self._accounts.items()):
            long_ago = now - max(ACCOUNT_RETENTION_MICROSECONDS, patience[rank])
            if not account.waiting and not account.running and account.starts.at <= long_ago:
                del self._accounts[rank, user]
        for queue in self.queues.values():
            models = {flow.model for flow in queue.flows.values()}
            queue.by_model = {
                model: ranking for model, ranking in queue.by_model.items() if model in models
            }
        return not self.queues and not self._accounts and self.credits is FULL

    def loaded_since(self, at: int) -> Counter[str]:
        """The number of loads of each model after this time."""
        return Counter(model for when, model in self.loads if when > at)

    def preview(self, most: int, is_blocked: Callable[[Flow], bool]) -> ServiceQueue:
        """A copy with the first `most` jobs of the first flows, to simulate the next claims."""
        other = ServiceQueue(self.service)
        other.credits = self.credits
        other.loads = self.loads.copy()
        for queue in self.queues.values():
            copy = other.queues[queue.key] = LaneQueue(queue.key, ages=queue.aged is not None)
            for flow in queue.first(most, is_blocked):
                other._copy(flow, copy, most)
            copy.count = queue.count  # jobs and flows that are not copied count too
            copy.wanted = dict(queue.wanted)
        return other

    def _copy(self, flow: Flow, queue: LaneQueue, most: int) -> None:
        account = None
        if flow.account is not None:
            key = (queue.rank, flow.user)
            account = self._accounts.get(key)
            if account is None:
                account = self._accounts[key] = flow.account.copy()
        line = flow.line.copy(most)
        copy = Flow(flow.name, queue, line.head, flow.model, account)
        copy.line = line
        self.flows[flow.name] = queue.flows[flow.name] = copy
        queue.count += len(line)
        lane = line.head.lane  # all jobs of a flow wait in one lane
        self.lanes[lane] = self.lanes.get(lane, 0) + len(line)
        copy.parked = flow.parked
        if not copy.parked:
            queue.flow_added(copy)
            queue.push(copy)

    # --- names -------------------------------------------------------------------------------
    def flow_name(self, entry: Entry) -> str:
        _, _, lane, band, rank, _, _, user, model, _, cap, _ = entry
        key = (lane, band, rank, cap, model, user)
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= MAX_CACHED_NAMES:
                self._names.clear()
            name = self._names[key] = self._new_name(entry)
        return name

    def _new_name(self, entry: Entry) -> str:
        tier = entry.band is Band.TIER
        user = entry.user if (self.fair and tier) or entry.cap else ""
        model = entry.model if self.keeps_models else ""
        rank = entry.rank if tier else -1
        return f"{entry.lane}|{entry.band}.{rank}.{entry.cap}|{model}|{user}"

    def _rank(self, entry: Entry) -> int:
        return entry.rank if entry.band is Band.TIER else -1

    def _model(self, entry: Entry) -> str:
        return entry.model if self.keeps_models else ""

    # --- parts -------------------------------------------------------------------------------
    def _queue(self, entry: Entry) -> LaneQueue:
        key = (entry.lane, entry.band, self._rank(entry))
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = LaneQueue(key, ages=self.fair and entry.band is Band.TIER)
        return queue

    def _flow(self, name: str, entry: Entry) -> Flow:
        account = None
        if self.fair and entry.band is Band.TIER:
            account = self._account(entry.rank, entry.user)
            if not account.waiting:
                virtual = self._virtual.get(entry.rank, 0)
                account.counter, self._virtual[entry.rank] = lift(account.counter, virtual)
        return Flow(name, self._queue(entry), entry, self._model(entry), account)

    def _account(self, rank: int, user: str) -> Account:
        account = self._accounts.get((rank, user))
        if account is None:
            account = self._accounts[rank, user] = Account()
        return account

    def _left(self, flow: Flow, entry: Entry) -> None:
        queue = flow.queue
        queue.count -= 1
        if flow.line.head is NO_ENTRY:
            del self.flows[flow.name], queue.flows[flow.name]
            if not flow.parked:
                queue.flow_removed(flow)
            if not queue.flows:
                del self.queues[queue.key]
        self.lanes[entry.lane] -= 1
        if not self.lanes[entry.lane]:
            del self.lanes[entry.lane]
        if flow.account is not None:
            flow.account.waiting -= 1
