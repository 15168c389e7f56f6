"""After the crash: what must be true at once, and what must be true when everything has run."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from fairlane.clock import ManualClock, seconds
from fairlane.ledger.messages import Filter
from fairlane.ledger.sqlite import SqliteLedger
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.credits import CreditSettings
from fairlane.model.event import EventType
from fairlane.model.job import Job
from fairlane.model.lease import Lease
from fairlane.model.state import ENDED, State
from fairlane.model.worker import Worker
from fairlane.policy.skip import price
from tests.core import core_of
from tests.crash.failpoints import Failpoints
from tests.crash.life import Asked, Life, output_of, read_diary, report
from tests.crash.scenarios import CREDITS, REQUESTS, settle

DOWN_FOR = seconds(90)
OVER = {EventType.JOB_COMPLETE, EventType.JOB_FAILED, EventType.JOB_CANCELLED}


def recover(folder: Path, *, repeats: bool) -> None:
    """Start again on what the dead process left, and hold it to its word. With `repeats` whoever
    got no answer asks again; without, they are gone too."""
    asyncio.run(_recover(Aftermath(folder), repeats=repeats))


async def _recover(after: Aftermath, *, repeats: bool) -> None:
    await after.nothing_is_unknown_to_the_index_and_the_outbox()
    await after.life.begin()
    try:
        await after.the_start_was_clean()
        await after.every_answer_is_true()
        await after.nothing_is_half_done()
        if repeats:
            await after.the_unanswered_call_is_repeated()
        await after.drain()
        await after.everything_came_to_an_end_once()
        await after.nothing_is_held()
        await after.the_money_is_right()
    finally:
        await after.life.engine.stop()


class Aftermath:
    def __init__(self, folder: Path) -> None:
        self.asked, at, self.told = read_diary(folder / "diary")
        self.life = Life(folder, Failpoints(), ManualClock(at + DOWN_FOR))
        self.known = self.life.known
        self.completed: dict[tuple[str, int], Lease] = {}
        self.ended: dict[str, State] = {}
        for each in self.asked:
            if each.answered:
                self.believe(each)
            self.may_be_discarded(each)

    def may_be_discarded(self, each: Asked) -> None:
        """A rejection, answered or not, may have deleted the output of the checked step."""
        if each.call.verb == "settle":
            for name, way in each.call.args["reports"]:
                lease = self.known.leases[name]
                if way == "quality" and lease.checked_step is not None:
                    self.completed.pop((lease.job, lease.step - 1), None)

    def believe(self, each: Asked) -> None:
        """What the answer has promised."""
        call = each.call
        self.known.learn(call, each.answer)
        if call.verb == "settle":
            for (name, way), state in zip(call.args["reports"], each.answer, strict=True):
                lease = self.known.leases[name]
                if state is None:
                    continue
                if way == "done":
                    self.completed[lease.job, lease.step] = lease
                if State(state) in ENDED:
                    self.ended[lease.job] = State(state)
        elif call.verb == "cancel":
            self.ended[self.known.jobs[call.args["job"]]] = State.CANCELLED
        elif call.verb in ("resume", "replay"):
            self.ended.pop(self.known.jobs[call.args["job"]], None)

    @property
    def unanswered(self) -> Asked | None:
        return None if self.asked[-1].answered else self.asked[-1]

    # --- at once -----------------------------------------------------------------------------
    async def nothing_is_unknown_to_the_index_and_the_outbox(self) -> None:
        """I24: an index that has outlived the process can catch up: what it was not told before,
        the outbox names."""
        ledger = await SqliteLedger.open(self.life.folder / "ledger.db")
        try:
            named = {job for _, jobs in await ledger.outbox(1_000) for job in jobs}
            async for page in ledger.live(1_000):
                unknown = [
                    (job.tags, job.rev)
                    for job in page
                    if job.state is State.QUEUED
                    and self.told.get(job.id, 0) < job.rev
                    and job.id not in named
                ]
                assert not unknown, f"queued, unknown to the index, not in the outbox: {unknown}"
        finally:
            await ledger.close()

    async def the_start_was_clean(self) -> None:
        """I26: the index is what the ledger says, and nothing is left to publish."""
        engine = self.life.engine
        assert await core_of(engine).ledger.outbox(10) == []
        queued = [job for job in await self.all_jobs() if job.state is State.QUEUED]
        truth = [core_of(engine).entry(job) for job in queued if not job.fan_out]
        assert await core_of(engine).index.differing(truth) == []
        counts = await engine.check()
        draining = counts.over_limit if self.asks_for("limit") else 0
        assert not any(counts._replace(over_limit=counts.over_limit - draining)), counts

    async def every_answer_is_true(self) -> None:
        """I1, I20: accepted jobs are there, results are what was acknowledged, ends are final."""
        jobs = {job.id: job for job in await self.all_jobs()}
        for tag, job in self.known.jobs.items():
            assert job in jobs, f"{tag} was accepted and is lost"
        for (job, step), lease in self.completed.items():
            await self.has_result(job, step, lease)
        for job, state in self.ended.items():
            assert jobs[job].state is state or self.may_have_moved(job), (jobs[job].tags, state)

    async def nothing_is_half_done(self) -> None:
        """I6: whatever was under way has happened completely or not at all."""
        tags = await self.jobs_by_tag()
        for tag, jobs in tags.items():
            assert len(jobs) == 1, f"{tag} is there {len(jobs)} times"
        for asked in self.asked:
            if asked.call.verb == "submit":
                there = {tag for tag in asked.call.args["tags"] if tag in tags}
                before = {tag for tag in asked.call.args["tags"] if tag in self.known.jobs}
                assert there == before or there == set(asked.call.args["tags"]), there
        for tag, (job,) in tags.items():
            cells = await self.cells(job.id)
            axes = REQUESTS[tag].matrix or {}
            assert len(cells) == job.cells == len(axes.get("n", ())), f"{tag}: {len(cells)} cells"

    async def the_unanswered_call_is_repeated(self) -> None:
        """I6: the same key, token or operation again has one effect."""
        if self.unanswered is None:
            return
        call = self.unanswered.call
        if call.verb == "submit":
            await self.submits_again(call.args["tags"])
        elif call.verb == "settle":
            await self.settles_again(call.args["reports"])
        elif call.verb in ("skip", "cancel", "resume", "replay"):
            await self.life.perform(call)
            self.believe(Asked(call, answered=True))

    async def submits_again(self, tags: list[str]) -> None:
        before = await self.jobs_by_tag()
        for tag in tags:
            if REQUESTS[tag].idempotency_key is None:
                continue
            answers = {(await self.life.engine.submit(REQUESTS[tag])).job for _ in range(2)}
            assert len(answers) == 1, "one key, two jobs"
            if tag in before:
                assert answers == {job.id for job in before[tag]}
            self.known.jobs[tag] = answers.pop()

    async def settles_again(self, reports: list[tuple[str, str]]) -> None:
        jobs = {job.id: job for job in await self.all_jobs()}
        for name, way in reports:
            lease = self.known.leases[name]
            if jobs[lease.job].state is State.CANCELLED:
                continue
            first, second = [
                (await self.life.engine.settle([report(lease, way)]))[0] for _ in range(2)
            ]
            assert getattr(second, "again", False), f"{name} {way}: {first}, then {second}"
            answer = [getattr(first, "state", None)]
            self.believe(Asked(settle(**{name: way}), answered=True, answer=answer))

    # --- in the end --------------------------------------------------------------------------
    async def drain(self) -> None:
        for _ in range(20):
            self.life.clock.advance(seconds(31))
            await self.life.engine.sweep()
            while leases := await self.life.engine.claim(Worker("heir"), 20):
                for lease in leases:
                    done = (lease.job, lease.step)
                    assert done not in self.completed, f"{lease.name}: done, and handed out again"
                    self.completed[done] = lease
                    await self.life.engine.complete(lease, output_of(lease))
            if all(job.state in ENDED for job in await self.all_jobs()):
                return

    async def everything_came_to_an_end_once(self) -> None:
        """I1, I18, I20, I21, I25: every job is over, no step has two results, one crash costs no
        job more than one attempt, events have no gap."""
        for job in await self.all_jobs():
            assert job.state in ENDED, f"{job.tags} is still {job.state}"
            if job.id in self.ended:
                assert job.state is self.ended[job.id] or self.may_have_moved(job.id), job.tags
            attempts = await self.life.engine.attempts(job.id)
            won = Counter(each.step for each in attempts if each.outcome is Outcome.COMPLETED)
            rejected = Counter(each.step - 1 for each in attempts if each.fault is Fault.QUALITY)
            assert set((won - rejected).values()) <= {1}, f"{job.tags}: a step completed twice"
            if job.state is State.COMPLETED and not job.fan_out:
                assert set(won) == set(range(len(job.plan))), f"{job.tags}: a step is missing"
            assert [each.fence for each in attempts] == list(range(1, job.fence + 1))
            if not self.asks_for("sweep"):
                lost = [
                    each for each in attempts if each.outcome in (Outcome.LOST, Outcome.TIMEOUT)
                ]
                assert len(lost) <= 1, f"{job.tags}: one crash, {len(lost)} attempts lost"
            await self.events_are_whole(job)
        for (job_id, step), lease in self.completed.items():
            await self.has_result(job_id, step, lease)
        for job_id in self.known.jobs.values():
            assert (await self.life.engine.get(job_id)).state in ENDED

    async def events_are_whole(self, job: Job) -> None:
        events = await core_of(self.life.engine).ledger.events(job.id, 0)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        kinds = Counter(event.type for event in events)
        overs = sum(kinds[kind] for kind in OVER)
        assert overs == 1 + kinds[EventType.JOB_REOPENED], f"{job.tags}: {kinds}"

    async def nothing_is_held(self) -> None:
        """I7, I9, I10: all slots are free again, in the ledger and in the index."""
        core = core_of(self.life.engine)
        self.life.clock.advance(seconds(3_600))
        await self.life.engine.sweep()
        assert await core.ledger.slots() == []
        stats = await core.index.stats()
        assert (stats.held, [use for use in stats.pools if use.held]) == (0, [])
        assert [depth for depth in stats.depths if depth.waiting or depth.delayed] == []
        counts = await self.life.engine.check()
        assert not any(counts), counts

    async def the_money_is_right(self) -> None:
        """I14: charged once for every skip that stands, and for nothing else."""
        standing = sum(
            price(job.duration, CreditSettings()) for job in await self.all_jobs() if job.paid_at
        )
        assert await self.life.engine.balance("ann") == CREDITS - standing
        for job in await self.all_jobs():
            if job.paid_at:
                assert job.state is State.COMPLETED or job.step > 0, f"{job.tags}: not refunded"

    # --- looking -----------------------------------------------------------------------------
    async def all_jobs(self) -> list[Job]:
        top = (await self.life.engine.list_jobs(limit=200)).jobs
        return [*top, *[cell for job in top if job.fan_out for cell in await self.cells(job.id)]]

    async def cells(self, parent: str) -> list[Job]:
        return (await self.life.engine.list_jobs(Filter(parent=parent), limit=200)).jobs

    async def jobs_by_tag(self) -> dict[str, list[Job]]:
        found: dict[str, list[Job]] = {}
        for job in (await self.life.engine.list_jobs(limit=200)).jobs:
            found.setdefault(job.tags[0], []).append(job)
        return found

    async def has_result(self, job: str, step: int, lease: Lease) -> None:
        view = await self.life.engine.view(job)
        stored = view.context.get(f"step_{step}_{lease.plan[step].service}", {}).get("data")
        assert stored == output_of(lease), f"{lease.name}: acknowledged result lost or replaced"

    def asks_for(self, verb: str) -> bool:
        return any(asked.call.verb == verb for asked in self.asked)

    def may_have_moved(self, job: str) -> bool:
        """The call that got no answer was about this job."""
        if self.unanswered is None or "job" not in self.unanswered.call.args:
            return False
        return self.known.jobs.get(self.unanswered.call.args["job"]) == job
