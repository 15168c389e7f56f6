"""A real queue and a model of it get the same random treatment and must agree after every step.

`FAIRLANE_THOROUGH=1` searches longer, and elsewhere each time. A failure prints the steps that lead
to it, and a blob that replays them."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fairlane.clock import seconds
from fairlane.engine.core import publish
from fairlane.engine.settle import Done, Failed, GivenBack, Report
from fairlane.errors import (
    FairlaneError,
    InsufficientCredits,
    InvalidInput,
    KeyReused,
    Refused,
    StaleLease,
    WrongState,
)
from fairlane.ledger.messages import Filter, Replayed, Settled, Stale, SubmissionAccepted
from fairlane.ledger.sqlite import SqliteLedger
from fairlane.ledger.sqlite.counters import QuotaCounters
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.catalog import Catalog
from fairlane.model.credits import CreditSettings
from fairlane.model.event import EventType
from fairlane.model.job import Job, NewJob
from fairlane.model.lease import Lease
from fairlane.model.quality_check import QualityCheck
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Overrun, Provider, Service
from fairlane.model.state import State
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Loaded, Worker
from fairlane.policy.retry import delay
from fairlane.policy.skip import price
from fairlane.servers.process import temporary_folder
from tests import stores
from tests.conformance.model import CHECK, FAILED, LIVE, Model, ModelJob
from tests.core import core_of
from tests.ledger_items import confirmation
from tests.world import World

T = TypeVar("T")

THOROUGH = bool(os.environ.get("FAIRLANE_THOROUGH"))
SEARCH = settings(
    max_examples=1_500 if THOROUGH else 100,
    stateful_step_count=80 if THOROUGH else 40,
    derandomize=not THOROUGH,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
SHORTER = settings(SEARCH, max_examples=10)
"""Where every step goes to a server."""

A_WHILE = settings(SEARCH, max_examples=30)

TIERS = Tiers(
    [
        Tier("high", max_retries=2, timeout=60),
        Tier("medium", {"high": 600}, max_retries=1, timeout=40),
        Tier(
            "low", {"medium": 600, "high": 900}, max_retries=0, timeout=20, max_running_per_user=2
        ),
    ]
)
FILE_LIMITS = {"svc:free": 0, "svc:one": 1, "svc:two": 2, "svc:kin": 0, "prov:shared": 2}
MEMBERS = {
    "svc:free": ["free"],
    "svc:one": ["one"],
    "svc:two": ["two"],
    "svc:kin": ["kin"],
    "prov:shared": ["two", "kin"],
}
PIPELINES = {
    "two_then_free": ("two", "free"),
    "one_then_kin": ("one", "kin"),
    "art_then_free": ("art", "free"),
}
WITH_CHECKS = {"art": ("art", CHECK), "art_then_free": ("art", CHECK, "free")}
NAMES = ["free", "one", "two", "kin", "art", *PIPELINES]
USERS = ["ann", "bob", None]
WORKERS = [Worker("w1"), Worker("w2")]
HOLDS_BEGIN = seconds(4 * 600)
REAPS_AFTER = seconds(15)
WAYS = [None, None, Fault.TRANSIENT, Fault.QUALITY]
"""How work ends; None = well."""
KEPT_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - only to spare the disk

picks = st.integers(0, 10_000)


def settings_file() -> Catalog:
    return Catalog(
        TIERS,
        [
            Service("free"),
            Service("one", limit=1, overrun=Overrun.STRICT),
            Service("two", limit=2, provider="shared"),
            Service("kin", provider="shared", max_attempts=2),
            Service("art", quality_check=QualityCheck(CHECK)),
            Service(CHECK),
        ],
        [Provider("shared", limit=2)],
        PIPELINES,
    )


PASSED = {"passed": True}


def output_of(lease: Lease) -> dict[str, Any]:
    """What a step makes; a check passes. It rejects with the fault `quality`."""
    return {"fence": lease.fence, **PASSED}


class Queue(RuleBasedStateMachine):
    """Every rule does one thing to the queue, says what must come of it, and tells the model."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        memory = KEPT_IN_MEMORY if os.access(KEPT_IN_MEMORY, os.W_OK) else None
        self.folder = temporary_folder("model", memory)
        self.model = Model(dict(FILE_LIMITS), MEMBERS)
        self.model.strict = {"one"}
        self.sound = False
        self.tampered = False
        self.sick = False
        self.requests: dict[str, NewJob] = {}
        self.seen: dict[str, tuple[int, int, int]] = {}
        self.operations = 0
        self.reached_since = 0

    @initialize()
    def start(self) -> None:
        self.world = World(settings_file(), self.folder / "ledger.db")
        self.run(self.world.start())
        self.begun = self.reached_since = self.now
        self.add_credits("ann", 5, 0)

    def run(self, doing: Coroutine[Any, Any, T]) -> T:
        self.sound = False
        result = self.runner.run(doing)
        self.sound = True
        return result

    @property
    def now(self) -> int:
        return self.world.clock.now()

    def pick_job(self, pick: int) -> ModelJob:
        jobs = list(self.model.jobs.values())
        return jobs[pick % len(jobs)]

    def leases(self) -> list[Lease]:
        return [job.lease for job in self.model.jobs.values() if job.lease is not None]

    def pick_lease(self, pick: int) -> Lease:
        return self.leases()[pick % len(self.leases())]

    def something_runs(self) -> bool:
        return bool(self.leases())

    def something_was_submitted(self) -> bool:
        return bool(self.model.jobs)

    # --- submit ------------------------------------------------------------------------------
    @rule(
        names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3),
        user=st.sampled_from(USERS),
        tier=st.sampled_from(TIERS.names),
        later=st.sampled_from([0, 0, 30]),
        patience=st.sampled_from([0, 0, 25]),
        duration=st.sampled_from([5, 45]),
        key=st.sampled_from([None, None, "k1", "k2"]),
    )
    def submit(
        self,
        names: list[str],
        user: str | None,
        tier: str,
        later: int,
        patience: int,
        duration: int,
        key: str | None,
    ) -> None:
        for name in names:
            request = NewJob(
                name,
                input={"n": len(self.model.jobs)},
                user=user,
                tier=tier,
                duration=duration,
                run_at=self.now + seconds(later) if later else None,
                max_wait=seconds(patience),
                idempotency_key=key,
            )
            if key in self.model.keys:
                self.run(self.is_refused(request, KeyReused))
            elif self.model.over_quota(self.model_job("new", request)):
                self.run(self.is_refused(request, Refused))
            else:
                self.run(self.is_accepted(request))

    async def is_accepted(self, request: NewJob) -> None:
        outcome = await self.world.engine.submit(request)
        assert isinstance(outcome, SubmissionAccepted), outcome
        assert outcome.job not in self.model.jobs, "an id was used twice"
        self.model.submitted(self.model_job(outcome.job, request))
        if request.idempotency_key is not None:
            self.model.keys[request.idempotency_key] = outcome.job
            self.requests[request.idempotency_key] = request

    async def is_refused(self, request: NewJob, refusal: type[FairlaneError]) -> None:
        with pytest.raises(refusal):
            await self.world.engine.submit(request)

    def model_job(self, job: str, request: NewJob, parent: str | None = None) -> ModelJob:
        tier = TIERS[request.tier or TIERS.default]
        steps = {**PIPELINES, **WITH_CHECKS}.get(request.name, (request.name,))
        return ModelJob(
            id=job,
            steps=steps,
            user=request.user,
            cap=tier.max_running_per_user,
            quota=tier.pending,
            max_attempts=1 + tier.max_retries,
            timeout=seconds(tier.timeout),
            max_wait=request.max_wait,
            price=price(request.duration, CreditSettings()),
            ready_at=request.run_at or self.now,
            parent=parent,
        )

    @precondition(lambda self: bool(self.model.keys))
    @rule(pick=picks)
    def submit_again(self, pick: int) -> None:
        """The same request under the same key, as after a lost answer."""
        key = sorted(self.model.keys)[pick % len(self.model.keys)]

        async def again() -> None:
            outcome = await self.world.engine.submit(self.requests[key])
            assert outcome == Replayed(self.model.keys[key], None)

        self.run(again())

    @rule(
        name=st.sampled_from(["free", "two", "two_then_free", "art"]),
        cells=st.integers(1, 3),
        user=st.sampled_from(USERS),
    )
    def submit_fan_out(self, name: str, cells: int, user: str | None) -> None:
        request = NewJob(name, user=user, tier="high", matrix={"n": tuple("abc"[:cells])})

        async def fan_out() -> None:
            outcome = await self.world.engine.submit(request)
            page = await self.world.engine.list_jobs(Filter(parent=outcome.job))
            assert len(page.jobs) == cells
            self.model.submitted(
                self.model_job(outcome.job, request),
                [self.model_job(cell.id, request, outcome.job) for cell in page.jobs],
            )

        self.run(fan_out())

    # --- claim -------------------------------------------------------------------------------
    @rule(n=st.integers(1, 4), who=st.integers(0, 1))
    def claim(self, n: int, who: int) -> None:
        async def one_claims() -> None:
            leases = await self.world.engine.claim(WORKERS[who], n)
            self.granted(leases)
            assert len(leases) <= n
            if len(leases) < n:
                self.nothing_was_left()

        self.run(one_claims())

    @rule(n=st.integers(1, 3))
    def claim_together(self, n: int) -> None:
        async def all_claim() -> None:
            claims = [self.world.engine.claim(worker, n) for worker in WORKERS]
            for leases in await asyncio.gather(*claims):
                self.granted(leases)

        self.run(all_claim())

    def granted(self, leases: list[Lease]) -> None:
        for lease in leases:
            job = self.model.jobs[lease.job]
            assert job.state is State.QUEUED, f"handed out while {job.state}"
            assert not job.cells, "a fan-out is not work"
            assert job.ready_at <= self.now, "handed out before its time"
            assert (lease.step, lease.service) == (job.step, job.service)
            assert lease.fence == job.fence + 1
            assert lease.attempt <= self.most_attempts(job), "more attempts than allowed"
            assert job.used + 1 - job.forgivable <= lease.attempt <= job.used + 1
            made = {f"step_{n}_{job.steps[n]}": output for n, output in job.outputs.items()}
            given = {name: lease.context.get(name, {}).get("data") for name in made}
            assert given == made, "a step sees what the steps before it made"
            self.model.started(lease)

    def most_attempts(self, job: ModelJob) -> int:
        return 2 if job.service == "kin" else job.max_attempts

    def nothing_was_left(self) -> None:
        """An empty-handed worker means: nothing that was due had a slot."""
        unswept = any(each.is_over(self.now) for each in self.model.holdings.values())
        if self.tampered or self.sick or unswept or self.now - self.begun >= HOLDS_BEGIN:
            return
        left = [
            job
            for job in self.model.jobs.values()
            if job.state is State.QUEUED
            and not job.cells
            and job.ready_at <= self.now
            and self.model.has_room(job)
        ]
        assert not left, f"not handed out: {left}"

    # --- settle ------------------------------------------------------------------------------
    @precondition(something_runs)
    @rule(pick=picks)
    def complete(self, pick: int) -> None:
        self.run(self.completes(self.pick_lease(pick)))

    async def completes(self, lease: Lease) -> None:
        output = output_of(lease)
        settled = await self.world.engine.complete(lease, output)
        assert not settled.again
        self.model.completed(lease, output, self.now)
        assert settled.state is self.model.jobs[lease.job].state

    @rule(n=st.integers(1, 5), ways=st.lists(st.sampled_from(WAYS), min_size=1, max_size=5))
    def work(self, n: int, ways: list[Fault | None]) -> None:
        """A worker takes what it can get and reports on all of it."""

        async def works() -> None:
            leases = await self.world.engine.claim(WORKERS[0], n)
            self.granted(leases)
            for lease, fault in zip(leases, itertools.cycle(ways), strict=False):
                if fault is None:
                    await self.completes(lease)
                else:
                    await self.fails(lease, fault, closed=True)

        self.run(works())

    @precondition(something_runs)
    @rule(pick=picks)
    def double_complete(self, pick: int) -> None:
        lease = self.pick_lease(pick)

        async def twice() -> None:
            output = output_of(lease)
            engine = self.world.engine
            first, second = await asyncio.gather(
                engine.complete(lease, output), engine.complete(lease, output)
            )
            assert sorted([first.again, second.again]) == [False, True]
            self.model.completed(lease, output, self.now)
            third = await engine.complete(lease, {"another": "output", **PASSED})
            assert third.again

        self.run(twice())

    @precondition(something_runs)
    @rule(pick=picks, fault=st.sampled_from(Fault), closed=st.booleans())
    def fail(self, pick: int, fault: Fault, closed: bool) -> None:
        self.run(self.fails(self.pick_lease(pick), fault, closed=closed))

    async def fails(self, lease: Lease, fault: Fault, *, closed: bool) -> None:
        self.sick = self.sick or fault is Fault.UNAVAILABLE
        job = self.model.jobs[lease.job]
        job.max_attempts = self.most_attempts(job)
        expected = self.model.after_failure(job, fault)
        settled = await self.world.engine.fail(lease, fault, "it broke", closed=closed)
        assert settled.state in expected, (settled, expected)
        ready_at = await self.retry_time(lease, fault, settled.state)
        self.model.failed(lease, fault, Outcome.FAILED, ready_at, closed=closed)

    async def retry_time(
        self, lease: Lease, fault: Fault, state: State, ended_at: int | None = None
    ) -> int | None:
        if state is not State.QUEUED:
            return None
        ready_at = (await self.world.job(lease.job)).ready_at
        if lease.service == CHECK and fault is Fault.QUALITY:
            assert ready_at == self.now, "rejected work waits for nothing"
            return ready_at
        soonest, latest = [(ended_at or self.now) + delay(lease.attempt, n) for n in (999, 0)]
        assert ready_at >= max(self.now, soonest), "back again too soon"
        if fault is not Fault.UNAVAILABLE:
            assert ready_at <= max(self.now, latest), "back again too late"
        return ready_at

    @precondition(something_runs)
    @rule(pick=picks)
    def give_back(self, pick: int) -> None:
        lease = self.pick_lease(pick)

        async def back() -> None:
            settled = await self.world.engine.give_back(lease)
            assert settled.state is State.QUEUED
            self.model.given_back(lease, self.now)

        self.run(back())

    @precondition(something_runs)
    @rule(pick=picks)
    def outage(self, pick: int) -> None:
        """A service is gone: everything that ran there fails at once."""
        service = self.pick_lease(pick).service
        leases = [lease for lease in self.leases() if lease.service == service]
        self.sick = True

        async def fail_together() -> None:
            reports = [Failed(lease, Fault.UNAVAILABLE, "no answer") for lease in leases]
            for lease, settled in zip(leases, await self.world.engine.settle(reports), strict=True):
                job = self.model.jobs[lease.job]
                job.max_attempts = self.most_attempts(job)
                assert isinstance(settled, Settled)
                assert settled.state in self.model.after_failure(job, Fault.UNAVAILABLE)
                ready_at = await self.retry_time(lease, Fault.UNAVAILABLE, settled.state)
                self.model.failed(lease, Fault.UNAVAILABLE, Outcome.FAILED, ready_at, closed=True)

        self.run(fail_together())

    @precondition(something_runs)
    @rule(first=picks, second=picks)
    def settle_several(self, first: int, second: int) -> None:
        """One batch: a result, another job given back, and the result once more."""
        done, other = self.pick_lease(first), self.pick_lease(second)

        async def several() -> None:
            reports: list[Report] = [Done(done, output_of(done)), Done(done, PASSED)]
            if other is not done:
                reports.append(GivenBack(other))
            outcomes = await self.world.engine.settle(reports)
            assert [isinstance(each, Settled) and each.again for each in outcomes] == [
                False,
                True,
                *[False] * (len(reports) - 2),
            ]
            self.model.completed(done, output_of(done), self.now)
            if other is not done:
                self.model.given_back(other, self.now)

        self.run(several())

    @precondition(lambda self: bool(self.model.ended))
    @rule(
        pick=picks,
        how=st.sampled_from([Outcome.COMPLETED, Outcome.FAILED, Outcome.RELEASED]),
        fault=st.sampled_from([Fault.TRANSIENT, Fault.UNAVAILABLE]),
    )
    def late_complete(self, pick: int, how: Outcome, fault: Fault = Fault.TRANSIENT) -> None:
        """A worker whose lease is over reports: it hears what became of the job, nothing moves."""
        lease, outcome = self.model.ended[pick % len(self.model.ended)]
        reports: dict[Outcome, Report] = {
            Outcome.COMPLETED: Done(lease, {"late": True, **PASSED}),
            Outcome.FAILED: Failed(lease, fault, "late"),
            Outcome.RELEASED: GivenBack(lease),
        }

        async def late() -> None:
            (answer,) = await self.world.engine.settle([reports[how]])
            state = self.model.jobs[lease.job].state
            if how is outcome:
                assert isinstance(answer, Settled)
                assert answer.again
                assert answer.state is state
            else:
                assert answer == Stale(state)
            self.model.closed_late(lease)

        self.run(late())

    @rule(length=st.sampled_from([5, 15, 200]))
    def renew(self, length: int) -> None:
        """All leases there ever were want to go on; those that are over hear it."""
        leases = self.leases() + [lease for lease, _ in self.model.ended]
        until = self.now + seconds(length)

        async def go_on() -> None:
            renewal = await self.world.engine.renew(leases, until)
            over = [each.job for each in leases if not self.model.renewed(each, until, self.now)]
            cancelled = {job for job in over if self.model.jobs[job].state is State.CANCELLED}
            assert Counter(renewal.lost) == Counter(job for job in over if job not in cancelled)
            assert set(renewal.cancelled) == cancelled

        self.run(go_on())

    # --- moves from outside ------------------------------------------------------------------
    @precondition(something_was_submitted)
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        job = self.pick_job(pick)

        async def cancels() -> None:
            if job.state in LIVE:
                await self.world.engine.cancel(job.id)
                self.model.cancelled(job, self.now)
            else:
                with pytest.raises(WrongState) as refusal:
                    await self.world.engine.cancel(job.id)
                assert refusal.value.state == job.state

        self.run(cancels())

    @precondition(something_runs)
    @rule(pick=picks)
    def race_complete_and_cancel(self, pick: int) -> None:
        lease = self.pick_lease(pick)
        job = self.model.jobs[lease.job]
        output = output_of(lease)

        async def race() -> None:
            engine = self.world.engine
            done, cancelled = await asyncio.gather(
                engine.complete(lease, output), engine.cancel(job.id), return_exceptions=True
            )
            if isinstance(done, Settled):
                self.model.completed(lease, output, self.now)
                if isinstance(cancelled, WrongState):
                    assert job.state is State.COMPLETED
                else:
                    assert cancelled is None
                    self.model.cancelled(job, self.now)
            else:
                assert isinstance(done, StaleLease), done
                assert cancelled is None
                self.model.cancelled(job, self.now)
                self.model.closed_late(lease)

        self.run(race())

    @precondition(something_was_submitted)
    @rule(pick=picks, fresh=st.booleans())
    def reopen(self, pick: int, fresh: bool) -> None:
        bad = [job for job in self.model.jobs.values() if job.state in FAILED]
        job = bad[pick % len(bad)] if bad and pick % 5 else self.pick_job(pick)

        async def reopens() -> None:
            engine = self.world.engine
            verb = engine.replay if fresh else engine.resume
            if not self.model.may_reopen(job, fresh=fresh):
                with pytest.raises(WrongState):
                    await verb(job.id)
            elif not fresh and self.model.over_quota(job):
                with pytest.raises(Refused):
                    await verb(job.id)
            else:
                self.operations += 1
                op = f"reopen-{self.operations}"
                await asyncio.gather(verb(job.id, op=op), verb(job.id, op=op))
                self.model.reopened(job, self.now, fresh=fresh)

        self.run(reopens())

    @rule(user=st.sampled_from(["ann", "bob"]), amount=st.sampled_from([1, 5]), n=st.integers(0, 9))
    def add_credits(self, user: str, amount: int, n: int) -> None:
        async def add() -> None:
            operation = f"grant-{user}-{amount}-{n}"
            known = self.model.balances.setdefault(user, 0)
            before = await self.world.engine.balance(user)
            assert before == known
            after = await self.world.engine.add_credits(user, amount, operation)
            assert after in (before, before + amount)
            again = await self.world.engine.add_credits(user, amount, operation)
            assert again == after, "one operation counted twice"
            self.model.balances[user] = after

        self.run(add())

    @precondition(something_was_submitted)
    @rule(pick=picks)
    def skip(self, pick: int) -> None:
        waiting = [each for each in self.model.jobs.values() if each.state is State.QUEUED]
        job = waiting[pick % len(waiting)] if waiting and pick % 5 else self.pick_job(pick)
        balance = self.model.balances.setdefault(job.user or "", 0)

        async def skips() -> None:
            engine = self.world.engine
            refusal: type[FairlaneError] | None = None
            if job.user is None:
                refusal = InvalidInput
            elif job.paid:
                assert (await engine.skip(job.id)).price == 0
                return
            elif job.state is not State.QUEUED:
                refusal = WrongState
            elif job.cells:
                refusal = InvalidInput
            elif balance < job.price:
                refusal = InsufficientCredits
            if refusal is not None:
                with pytest.raises(refusal):
                    await engine.skip(job.id)
                return
            first, second = await asyncio.gather(engine.skip(job.id), engine.skip(job.id))
            assert sorted([first.price, second.price]) == [0, job.price]
            self.model.skipped(job)

        self.run(skips())

    # --- time --------------------------------------------------------------------------------
    @rule(
        duration=st.sampled_from([0.5, 3, 6, 16, 16, 31, 70, 300]),
        sweeps=st.sampled_from([0, 0, 1, 2, 5]),
    )
    def pass_time(self, duration: float, sweeps: int) -> None:
        self.run(self.time_passes(duration, sweeps))

    async def time_passes(self, duration: float, sweeps: int) -> None:
        self.world.clock.advance(seconds(duration))
        for _ in range(sweeps):
            overdue = self.model.overdue(self.now)
            await self.world.engine.sweep()
            if self.now - self.reached_since >= REAPS_AFTER:
                for job in overdue:
                    await self.was_reaped(job)
            self.model.slots_freed(self.now)
            self.model.gave_up(self.now)

    async def was_reaped(self, job: ModelJob) -> None:
        lease = job.lease
        assert lease is not None
        job.max_attempts = self.most_attempts(job)
        out_of_time = self.now >= lease.deadline
        fault = Fault.TIMEOUT if out_of_time else Fault.TRANSIENT
        (state,) = self.model.after_failure(job, fault)
        ready_at = await self.retry_time(lease, fault, state, job.lease_until)
        outcome = Outcome.TIMEOUT if out_of_time else Outcome.LOST
        self.model.failed(lease, fault, outcome, ready_at, closed=False)

    # --- settings, and the index as an untrusted party ---------------------------------------
    @rule(
        pool=st.sampled_from(["svc:free", "svc:one", "svc:two", "prov:shared"]),
        limit=st.integers(0, 3),
    )
    def change_limit(self, pool: str, limit: int) -> None:
        kind, name = pool.split(":")
        self.world.clock.advance(1)  # the same change at the same time is a repeated request

        async def change() -> None:
            await self.world.engine.change(
                "services" if kind == "svc" else "providers", name, "limit", limit
            )
            self.model.limit_changed(pool, limit)

        self.run(change())

    @rule()
    def rebuild(self) -> None:
        self.run(self.rebuilds())

    async def rebuilds(self) -> None:
        await self.world.engine.rebuild()
        self.tampered = False
        await self.index_agrees()

    @rule()
    def restart(self) -> None:
        async def restarts() -> None:
            await self.world.restart()
            self.reached_since = self.now
            if core_of(self.world.engine).ledger.alone:
                self.model.prolonged(self.now, REAPS_AFTER)
                self.reached_since = 0
            assert await core_of(self.world.engine).ledger.outbox(10) == []
            # Redis keeps the index and the circuit breakers
            if not isinstance(stores.present, stores.PostgresAndRedis):
                self.tampered = self.sick = False
            if not self.tampered:
                await self.index_agrees()

        self.run(restarts())

    @precondition(something_was_submitted)
    @rule(
        chosen=st.lists(picks, min_size=1, max_size=4),
        ahead=st.sampled_from([0, 0, 0, -1, 1, 50]),
        name=st.sampled_from(["", "", "", "free", "one", "two"]),
        rank=st.sampled_from([-1, -1, -1, 0, 2]),
        ghost=st.booleans(),
    )
    def forge(self, chosen: list[int], ahead: int, name: str, rank: int, ghost: bool) -> None:
        """Somebody writes nonsense into the index."""

        async def forges() -> None:
            self.tampered = True
            core = core_of(self.world.engine)
            for pick in chosen:
                true = core.entry(await self.world.job(self.pick_job(pick).id))
                forged = true._replace(
                    id=f"ghost-{pick}" if ghost else true.id,
                    rev=max(1, true.rev + ahead),
                    lane=f"{name}||" if name else true.lane,
                    rank=rank if rank >= 0 else true.rank,
                    score=0,
                    ready_at=0,
                )
                await core.index.take([(forged.id, forged.rev)])
                await core.index.put([forged], self.now)

        self.run(forges())

    @rule(n=st.integers(1, 3))
    def late_confirm(self, n: int) -> None:
        """A claim stops half-way for longer than proposals are held: it comes too late."""

        async def half_a_claim() -> None:
            core = core_of(self.world.engine)
            picks = await core.index.claim(WORKERS[0], Loaded(), n, self.now, core.epoch)
            await core.index.leave(WORKERS[0].id)
            await self.time_passes(6, 1)
            jobs = await core.ledger.jobs([each.entry.id for each in picks.proposals])
            late = [
                confirmation(self.world, jobs[entry.id], slots)._replace(
                    token=token, rev=entry.rev, cap=entry.cap
                )
                for token, entry, slots, _ in picks.proposals
                if entry.id in jobs
            ]
            written = await core.ledger.confirm(late)
            assert [each for each in written.outcomes if isinstance(each, Lease)] == []

        self.run(half_a_claim())

    @rule(chosen=st.lists(picks, max_size=6), unknown=st.booleans())
    def publish(self, chosen: list[int], unknown: bool) -> None:
        """Outbox rows arrive in any order and number."""
        jobs = list(self.model.jobs)
        ids = [jobs[pick % len(jobs)] for pick in chosen] if jobs else []

        async def publishes() -> None:
            await publish(core_of(self.world.engine), [*ids, "nobody"] if unknown else ids)
            await publish(core_of(self.world.engine), ids[::-1])

        self.run(publishes())

    @rule()
    def reconcile(self) -> None:
        """Half a minute of sweeps finds and heals whatever the index has wrong about live jobs."""

        async def half_a_minute() -> None:
            await self.time_passes(0, 30)
            assert await self.differing() == []

        self.run(half_a_minute())

    async def index_agrees(self) -> None:
        """Right after a rebuild: line and slots are those of the ledger."""
        assert await self.differing() == []
        stats = await core_of(self.world.engine).index.stats()
        slots = Counter(row.slot.pool for row in await core_of(self.world.engine).ledger.slots())
        assert {use.pool: use.held for use in stats.pools if use.held} == {
            pool: held
            for pool, held in slots.items()
            if pool.startswith("user:") or self.model.limits[pool]
        }
        limits = {use.pool: use.limit for use in stats.pools if not use.pool.startswith("user:")}
        assert limits == {pool: limit for pool, limit in self.model.limits.items() if limit}

    async def differing(self) -> list[tuple[str, Entry | None]]:
        core = core_of(self.world.engine)
        jobs = (await core.ledger.jobs(list(self.model.jobs))).values()
        truth = [core.entry(job) for job in jobs if job.state is State.QUEUED and not job.cells]
        return await core.index.differing(truth)

    # --- what must hold after every step -----------------------------------------------------
    @invariant()
    def ledger_and_model_agree(self) -> None:
        self.run(self.agree())

    async def agree(self) -> None:
        core = core_of(self.world.engine)
        jobs = await core.ledger.jobs(list(self.model.jobs))
        wrong = {
            job.id: (jobs[job.id].state if job.id in jobs else "lost", job.state)
            for job in self.model.jobs.values()
            if job.id not in jobs or jobs[job.id].state is not job.state
        }
        assert not wrong, f"job: (is, should be): {wrong}"
        for job in jobs.values():
            self.job_agrees(job)
            if self.seen.get(job.id) != (job.rev, job.seq, job.fence):
                await self.history_agrees(job)
                self.seen[job.id] = (job.rev, job.seq, job.fence)
        await self.slots_agree()
        for user, balance in self.model.balances.items():
            assert await core.ledger.balance("default", user) == balance
        stored = [await core.ledger.count(state) for state in State]
        assert sum(stored) == sum(job.parent is None for job in jobs.values()), "nobody's job"
        await self.counts_agree()
        if not self.tampered:
            assert await self.differing() == [], "the index has missed something"
        assert (await core.index.stats()).held == len(self.leases()), "held, and not running"

    def job_agrees(self, job: Job) -> None:
        known = self.model.jobs[job.id]
        lease = known.lease
        assert job.token == (lease.token if lease is not None else None)
        assert job.lease_until == (known.lease_until if lease is not None else None)
        assert (job.fence, job.step) == (known.fence, known.step)
        assert (job.error.code if job.error is not None else None) == known.code
        assert (job.finished_at is None) == (known.state in LIVE)
        if known.state is State.QUEUED and not known.cells:
            assert job.ready_at == known.ready_at

    async def counts_agree(self) -> None:
        """I13: what quotas count is what the rows say."""
        ledger = core_of(self.world.engine).ledger
        queued = sum(
            job.state is State.QUEUED and not job.cells for job in self.model.jobs.values()
        )
        assert (await ledger.load())[0] == queued
        if isinstance(ledger, SqliteLedger):
            with closing(sqlite3.connect(self.world.path)) as look:
                rows = QuotaCounters(look)
            kept = ledger._writer.tally  # noqa: SLF001 - kept by nobody else
            assert (kept.queued, kept.pending) == (rows.queued, rows.pending)

    async def history_agrees(self, job: Job) -> None:
        """I20, I25: one result a step; events numbered from 1 without a gap."""
        ledger = core_of(self.world.engine).ledger
        known = self.model.jobs[job.id]
        events = await ledger.events(job.id, 0)
        assert [event.seq for event in events] == list(range(1, job.seq + 1))
        kinds = Counter(event.type for event in events)
        assert events[0].type is EventType.WAITING
        assert kinds[EventType.STEP_START] == known.fence
        assert kinds[EventType.STEP_COMPLETE] == len(known.outputs) + len(known.discarded)
        attempts = await ledger.attempts(job.id)
        ended = known.fence - (known.lease is not None)
        assert [attempt.fence for attempt in attempts] == list(range(1, ended + 1))
        won = Counter(each.step for each in attempts if each.outcome is Outcome.COMPLETED)
        assert won == Counter([*known.outputs, *known.discarded])
        _, context = await ledger.payload(job.id)
        for step, output in known.outputs.items():
            assert context[f"step_{step}_{known.steps[step]}"]["data"] == output

    async def slots_agree(self) -> None:
        """I7, I9, I11: exactly the slots that live leases and unfinished calls hold. A claim may
        free those that are over before a sweep does."""
        rows = await core_of(self.world.engine).ledger.slots()
        held = {(row.slot.pool, row.token, row.slot.until) for row in rows}
        assert len(held) == len(rows)
        expected = {
            (pool, token, holding.until or 0): holding
            for token, holding in self.model.holdings.items()
            for pool in holding.pools
        }
        assert held <= expected.keys()
        assert all(expected[each].is_over(self.now) for each in expected.keys() - held)
        limited = {pool: limit for pool, limit in self.model.limits.items() if limit}
        for pool, limit in limited.items():
            assert self.model.held(pool, self.now) <= max(limit, self.model.draining(pool)), pool
        counts = await self.world.engine.check()
        assert counts.over_limit <= sum(map(self.model.draining, limited))
        assert not any(counts._replace(over_limit=0)), counts

    # --- the end -----------------------------------------------------------------------------
    def teardown(self) -> None:
        try:
            if self.sound:
                self.run(self.drain())
        finally:
            if hasattr(self, "world"):
                self.runner.run(self.world.engine.stop())
            self.runner.close()
            shutil.rmtree(self.folder)

    async def drain(self) -> None:
        """I1, I10: with workers, every accepted job comes to an end, and then nothing is held."""
        for lease in self.leases():
            await self.completes(lease)
        for _ in range(40):
            await self.time_passes(61, 30 if self.tampered else 1)
            while leases := await self.world.engine.claim(WORKERS[0], 50):
                self.granted(leases)
                for lease in leases:
                    await self.completes(lease)
            if not self.unfinished() and not self.model.holdings:
                break
        assert not self.unfinished()
        await self.agree()
        assert await core_of(self.world.engine).ledger.slots() == []
        stats = await core_of(self.world.engine).index.stats()
        assert (stats.held, [use for use in stats.pools if use.held]) == (0, [])

    def unfinished(self) -> list[ModelJob]:
        return [job for job in self.model.jobs.values() if job.state in LIVE]


Step = Callable[[Queue], None]


def a_job(name: str = "one", tier: str = "high", later: int = 0) -> Step:
    return lambda queue: queue.submit([name], "ann", tier, later, 0, 5, None)


ALWAYS_TRIED: dict[str, list[Step]] = {
    "the same result twice in one transaction": [
        a_job(),
        lambda queue: queue.claim(1, 0),
        lambda queue: queue.double_complete(0),
    ],
    "a limit changed twice before a restart": [
        lambda queue: queue.change_limit("svc:one", 2),
        lambda queue: queue.change_limit("svc:one", 3),
        lambda queue: queue.restart(),
    ],
    "a limit changed to and fro": [
        lambda queue: queue.change_limit("svc:free", 0),
        lambda queue: queue.change_limit("svc:free", 1),
        lambda queue: queue.change_limit("svc:free", 0),
        lambda queue: queue.rebuild(),
    ],
    "a fan-out forged into the line": [
        lambda queue: queue.submit_fan_out("free", 2, None),
        lambda queue: queue.forge([0], 0, "", -1, False),
        lambda queue: queue.claim(1, 0),
    ],
    "a job forged to be early": [
        a_job(later=30),
        lambda queue: queue.forge([0], 0, "", -1, False),
        lambda queue: queue.claim(1, 0),
    ],
    "a paid job that fails after its first step": [
        a_job("two_then_free"),
        lambda queue: queue.skip(1),
        lambda queue: queue.work(1, [None]),
        lambda queue: queue.work(1, [Fault.QUALITY]),
    ],
    "a slot kept over a rebuild, then freed early": [
        a_job(),
        lambda queue: queue.claim(1, 0),
        lambda queue: queue.cancel(0),
        lambda queue: queue.rebuild(),
        lambda queue: queue.late_complete(0, Outcome.COMPLETED),
        a_job(),
        lambda queue: queue.claim(1, 0),
    ],
    "a fan-out whose cells were cancelled one by one": [
        lambda queue: queue.submit_fan_out("free", 2, None),
        lambda queue: queue.cancel(1),
        lambda queue: queue.cancel(2),
        lambda queue: queue.reopen(5, False),
        lambda queue: queue.reopen(5, True),
    ],
    "a job cancelled after its lease ran out, in a full pool": [
        lambda queue: queue.change_limit("svc:free", 1),
        a_job("free"),
        a_job("free"),
        lambda queue: queue.claim(1, 0),
        lambda queue: queue.pass_time(16, 0),
        lambda queue: queue.cancel(0),
        lambda queue: queue.claim(2, 0),
    ],
    "a worker that lost its lease speaks ill of the service": [
        a_job("free", "medium"),
        lambda queue: queue.claim(1, 0),
        lambda queue: queue.pass_time(16, 1),
        lambda queue: queue.late_complete(0, Outcome.FAILED, Fault.UNAVAILABLE),
        a_job("free"),
        a_job("free"),
        lambda queue: queue.claim(2, 0),
        lambda queue: queue.outage(0),
        lambda queue: queue.pass_time(300, 1),
        lambda queue: queue.claim(1, 0),
        lambda queue: queue.complete(0),
        lambda queue: queue.claim(3, 0),
    ],
}


@pytest.mark.parametrize("sequence", ALWAYS_TRIED)
def test_what_chance_finds_too_rarely_is_tried_every_time(sequence: str) -> None:
    """I3, I6, I11, I14, I26, I27: most of these broke the queue once."""
    queue = Queue()
    try:
        queue.start()
        for step in ALWAYS_TRIED[sequence]:
            step(queue)
            queue.ledger_and_model_agree()
    finally:
        queue.teardown()


@pytest.mark.timeout(600)
def test_whatever_is_done_to_the_queue_it_stays_what_the_model_says() -> None:
    """I1, I3, I5, I7, I9 to I12, I14, I18, I20, I21, I23, I25 to I27, on all stores."""
    embedded = isinstance(stores.present, stores.Embedded)
    run_state_machine_as_test(Queue, settings=A_WHILE if embedded else SHORTER)


@pytest.mark.long
@pytest.mark.embedded
@pytest.mark.timeout(3600 if THOROUGH else 240)
def test_a_longer_search_finds_nothing_either() -> None:
    run_state_machine_as_test(Queue, settings=SEARCH)
