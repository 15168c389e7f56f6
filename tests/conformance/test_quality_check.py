"""Quality checks: a step of their own after the work, and what their verdict does (decision 20)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fairlane.engine.settle import Done, Failed
from fairlane.errors import SetupError, StaleLease, WrongState
from fairlane.ledger.messages import Settled, Stale
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.catalog import Catalog, Limits
from fairlane.model.event import EventType
from fairlane.model.job_result import result_of
from fairlane.model.lease import Lease
from fairlane.model.quality_check import OnFail, QualityCheck
from fairlane.model.service import (
    Executor,
    Fairness,
    Overrun,
    RetryPlace,
    Service,
    Shares,
)
from fairlane.model.state import Code, State
from fairlane.model.worker import Worker
from tests.conformance.acts import cells_of, claim_until_found, endings, history, slots_match, types
from tests.core import core_of
from tests.world import World, catalog

ADA = "ada"
GOOD: dict[str, Any] = {"passed": True, "score": 0.9}
BAD: dict[str, Any] = {"passed": False, "reason": "too quiet"}
UNSHARED = Shares(1000, 1000, 1000)


def service(name: str, **more: Any) -> Service:
    return Service(name, **{"fairness": Fairness.NONE, "shares": UNSHARED, **more})


def checked(
    on_fail: OnFail = OnFail.RETRY,
    *more: Service,
    judge: dict[str, Any] | None = None,
    limits: Limits | None = None,
    **work: Any,
) -> Catalog:
    """A service "draw" with three attempts, a judge with two, and a pipeline that goes on."""
    check = QualityCheck("judge", on_fail)
    return catalog(
        service("draw", **{"max_attempts": 3, "quality_check": check, **work}),
        service("judge", **{"max_attempts": 2, **(judge or {})}),
        service("print"),
        *more,
        pipelines={"poster": ("draw", "print")},
        limits=limits or Limits(),
    )


async def drawn(world: World, output: Any = "picture", name: str = "draw", **more: Any) -> Lease:
    """Submit a job and complete its work; the lease of its check."""
    await world.submit(name, **more)
    await world.engine.complete(await world.claim_one(), output)
    lease = await world.claim_one()
    assert lease.service == "judge"
    return lease


async def outputs(world: World, job: str) -> dict[str, Any]:
    """The outputs that a reader finds, by step."""
    context = (await world.engine.view(job)).context
    return {
        name: value["data"] for name, value in context.items() if not name.endswith("__attempts")
    }


async def quality(world: World, job: str) -> list[tuple[str, str, bool | None, str]]:
    found = (await world.engine.view(job)).quality
    return [(each.step, each.checked_step, *each.verdict) for each in found]


# --- the settle table ----------------------------------------------------------------------------
@pytest.mark.parametrize("on_fail", list(OnFail))
@pytest.mark.parametrize("verdict", [True, GOOD])
async def test_a_passed_check_completes_the_job_with_the_works_result(
    tmp_path: Path, on_fail: OnFail, verdict: Any
) -> None:
    async with World(checked(on_fail), tmp_path / "ledger.db") as world:
        check = await drawn(world)
        assert await outputs(world, check.job) == {"step_0_draw": "picture"}
        assert await quality(world, check.job) == []
        await world.engine.complete(check, verdict)
        job = await world.job(check.job)
        assert (job.state, job.step) == (State.COMPLETED, 2)
        seen = await world.engine.view(check.job)
        assert result_of(job, seen.context) == "picture"
        assert await quality(world, check.job) == [("step_1_judge", "step_0_draw", True, "")]
        assert await types(world, check.job) == [
            EventType.WAITING,
            EventType.STEP_START,
            EventType.STEP_COMPLETE,
            EventType.WAITING,
            EventType.STEP_START,
            EventType.STEP_COMPLETE,
            EventType.JOB_COMPLETE,
        ]
        await world.healthy()


async def test_a_passed_check_lets_the_next_step_begin(tmp_path: Path) -> None:
    """I20: the step after the check begins once, and sees both outputs."""
    async with World(checked(), tmp_path / "ledger.db") as world:
        check = await drawn(world, name="poster")
        await world.engine.complete(check, GOOD)
        following = await world.claim_one()
        assert (following.service, following.step) == ("print", 2)
        assert following.context["step_0_draw"]["data"] == "picture"
        assert following.context["step_1_judge"]["data"] == GOOD
        await world.engine.complete(following, "paper")
        job = await world.job(check.job)
        assert result_of(job, (await world.engine.view(check.job)).context) == "paper"


async def test_a_rejection_costs_the_checked_step_an_attempt(tmp_path: Path) -> None:
    """I18: rejected and failed attempts are one budget. The check's own attempts are another."""
    async with World(checked(), tmp_path / "ledger.db") as world:
        job = await world.submit("draw")
        await world.engine.fail(await world.claim_one(), Fault.TRANSIENT)
        second = await claim_until_found(world)
        assert second.attempt == 2
        await world.engine.complete(second, "noise")
        await world.engine.complete(await world.claim_one(), BAD)
        waiting = await world.job(job)
        assert (waiting.state, waiting.step, waiting.attempt) == (State.QUEUED, 0, 2)
        third = await world.claim_one()
        assert (third.service, third.attempt) == ("draw", 3)
        await world.engine.complete(third, "hiss")
        check = await world.claim_one()
        assert (check.service, check.attempt) == ("judge", 1)
        await world.engine.complete(check, BAD)
        dead = await world.job(job)
        assert (dead.state, dead.step, dead.attempt) == (State.DEAD, 0, 3)
        assert dead.error is not None
        assert (dead.error.code, dead.error.message) == (
            Code.MAX_ATTEMPTS,
            "quality check: too quiet",
        )
        assert await endings(world, job) == 1
        await world.healthy()


async def test_rejected_work_runs_again_at_once_and_its_new_output_counts(tmp_path: Path) -> None:
    """I20: no later step sees a rejected output, and the check judges the new one."""
    async with World(checked(), tmp_path / "ledger.db") as world:
        check = await drawn(world, "noise", "poster")
        await world.engine.complete(check, BAD)
        assert await outputs(world, check.job) == {}
        assert await quality(world, check.job) == [
            ("step_1_judge", "step_0_draw", False, "too quiet")
        ]
        again = await world.claim_one()
        assert (again.service, again.step, again.attempt, again.context) == ("draw", 0, 2, {})
        await world.engine.complete(again, "picture")
        check = await world.claim_one()
        assert check.context["step_0_draw"]["data"] == "picture"
        assert check.context["step_0_draw__attempts"] == 2
        await world.engine.complete(check, GOOD)
        await world.engine.complete(await world.claim_one(), "paper")
        assert await outputs(world, check.job) == {
            "step_0_draw": "picture",
            "step_1_judge": GOOD,
            "step_2_print": "paper",
        }
        attempts = [
            (each.step, each.number, each.outcome, each.fault)
            for each in await world.engine.attempts(check.job)
        ]
        assert attempts == [
            (0, 1, Outcome.COMPLETED, None),
            (1, 1, Outcome.FAILED, Fault.QUALITY),
            (0, 2, Outcome.COMPLETED, None),
            (1, 1, Outcome.COMPLETED, None),
            (2, 1, Outcome.COMPLETED, None),
        ]
        await world.healthy()


async def test_a_retry_event_names_the_checked_step_the_reason_and_the_check(
    tmp_path: Path,
) -> None:
    async with World(checked(), tmp_path / "ledger.db") as world:
        check = await drawn(world)
        await world.engine.complete(check, BAD)
        (retry,) = [
            event for event in await history(world, check.job) if event.type is EventType.JOB_RETRY
        ]
        assert retry.message == "Trying draw again (1/2)"
        assert {name: retry.data[name] for name in ("fault", "message", "checked_by")} == {
            "fault": "quality",
            "message": "too quiet",
            "checked_by": "judge",
        }


async def test_a_rejection_fails_the_job_if_so_configured(tmp_path: Path) -> None:
    """I20: nothing runs after it; the rejected output stays readable."""
    async with World(checked(OnFail.FAIL), tmp_path / "ledger.db") as world:
        check = await drawn(world, "noise", "poster")
        await world.engine.complete(check, BAD)
        job = await world.job(check.job)
        assert (job.state, job.step, job.attempt) == (State.FAILED, 0, 1)
        assert job.error is not None
        assert (job.error.code, job.error.message) == (Code.QUALITY, "too quiet")
        assert await outputs(world, check.job) == {"step_0_draw": "noise"}
        assert await quality(world, check.job) == [
            ("step_1_judge", "step_0_draw", False, "too quiet")
        ]
        assert await world.claim(5) == []
        with pytest.raises(WrongState):
            await world.engine.resume(check.job)
        await world.healthy()


async def test_a_rejection_marks_the_job_if_so_configured(tmp_path: Path) -> None:
    async with World(checked(OnFail.MARK), tmp_path / "ledger.db") as world:
        check = await drawn(world, "noise")
        await world.engine.complete(check, BAD)
        job = await world.job(check.job)
        assert job.state is State.COMPLETED
        assert await outputs(world, check.job) == {"step_0_draw": "noise", "step_1_judge": BAD}
        assert await quality(world, check.job) == [
            ("step_1_judge", "step_0_draw", False, "too quiet")
        ]


@pytest.mark.parametrize("on_fail", list(OnFail))
async def test_a_check_may_reject_by_failing_with_the_fault_quality(
    tmp_path: Path, on_fail: OnFail
) -> None:
    async with World(checked(on_fail), tmp_path / "ledger.db") as world:
        check = await drawn(world)
        await world.engine.fail(check, Fault.QUALITY, "too quiet")
        expected = {
            OnFail.RETRY: State.QUEUED,
            OnFail.FAIL: State.FAILED,
            OnFail.MARK: State.COMPLETED,
        }
        assert (await world.job(check.job)).state is expected[on_fail]
        assert await quality(world, check.job) == [
            ("step_1_judge", "step_0_draw", False, "too quiet")
        ]


@pytest.mark.parametrize("answer", [None, "yes", {"ok": True}, {"passed": None}, {"passed": 1}])
async def test_an_answer_without_a_verdict_is_an_error_of_the_check(
    tmp_path: Path, answer: Any
) -> None:
    """I20: a check that cannot judge never counts as passed; the work is kept."""
    async with World(checked(), tmp_path / "ledger.db") as world:
        check = await drawn(world)
        await world.engine.complete(check, answer)
        job = await world.job(check.job)
        assert (job.state, job.step) == (State.FAILED, 1)
        assert job.error is not None
        assert job.error.code is Code.SERVICE_ERROR
        assert await outputs(world, check.job) == {"step_0_draw": "picture"}


async def test_a_check_that_fails_for_good_ends_the_job_at_the_check(tmp_path: Path) -> None:
    """I20: replay runs only the check; the work is neither lost nor run again."""
    async with World(checked(), tmp_path / "ledger.db") as world:
        check = await drawn(world)
        await world.engine.fail(check, Fault.TRANSIENT)
        await world.engine.fail(await claim_until_found(world), Fault.TRANSIENT)
        job = await world.job(check.job)
        assert (job.state, job.step, job.attempt) == (State.DEAD, 1, 2)
        await world.engine.replay(check.job)
        again = await world.claim_one()
        assert (again.service, again.attempt) == ("judge", 1)
        assert again.context["step_0_draw"]["data"] == "picture"
        await world.engine.complete(again, GOOD)
        assert (await world.job(check.job)).state is State.COMPLETED
        await world.healthy()


@pytest.mark.parametrize("name", ["draw", "poster"])
async def test_an_advisory_check_that_fails_for_good_does_not_end_the_work(
    tmp_path: Path, name: str
) -> None:
    async with World(checked(OnFail.MARK), tmp_path / "ledger.db") as world:
        check = await drawn(world, name=name)
        await world.engine.fail(check, Fault.SERVICE_ERROR, "no such model")
        assert await quality(world, check.job) == [
            ("step_1_judge", "step_0_draw", None, "no such model")
        ]
        if name == "poster":
            await world.engine.complete(await world.claim_one(), "paper")
        assert (await world.job(check.job)).state is State.COMPLETED
        await world.healthy()


async def test_an_advisory_check_whose_call_may_still_run_keeps_its_slot(tmp_path: Path) -> None:
    """I19: the slot of the check stays taken until its deadline, though the job is completed."""
    judge = {"executor": Executor.HTTP, "limit": 1, "max_attempts": 1, "timeout": 60}
    async with World(checked(OnFail.MARK, judge=judge), tmp_path / "ledger.db") as world:
        check = await drawn(world)
        await world.engine.fail(check, Fault.TIMEOUT, "no answer", closed=False)
        assert (await world.job(check.job)).state is State.COMPLETED
        (slot,) = await core_of(world.engine).ledger.slots()
        assert slot.slot.pool == "svc:judge"
        await slots_match(world)
        await world.pass_time(61)
        assert await core_of(world.engine).ledger.slots() == []
        await slots_match(world)


@pytest.mark.parametrize("on_fail", list(OnFail))
@pytest.mark.parametrize("by_fault", [False, True])
async def test_a_rejection_whose_call_may_still_run_keeps_the_slot_of_the_check(
    tmp_path: Path, on_fail: OnFail, by_fault: bool
) -> None:
    """I19: whatever the rejection does to the job."""
    judge = {"executor": Executor.HTTP, "limit": 1, "timeout": 60}
    async with World(checked(on_fail, judge=judge), tmp_path / "ledger.db") as world:
        check = await drawn(world)
        if by_fault:
            await world.engine.fail(check, Fault.QUALITY, "too quiet", closed=False)
        else:
            await world.engine.settle([Done(check, BAD, closed=False)])
        (slot,) = await core_of(world.engine).ledger.slots()
        assert slot.slot.pool == "svc:judge"
        await slots_match(world)
        await world.pass_time(61)
        assert await core_of(world.engine).ledger.slots() == []
        await slots_match(world)


@pytest.mark.parametrize("limits", [Limits(context_bytes=150), Limits(result_bytes=150)])
@pytest.mark.parametrize("verdict", [{**BAD, "heat_map": "x" * 200}, "no verdict"])
async def test_a_verdict_that_is_too_large_does_not_end_the_work_of_an_advisory_check(
    tmp_path: Path, limits: Limits, verdict: Any
) -> None:
    """The verdict is stored without the rest, and does not count for the context of later steps."""
    settings = checked(OnFail.MARK, limits=limits)
    async with World(settings, tmp_path / "ledger.db") as world:
        check = await drawn(world, name="poster")
        await world.engine.complete(check, verdict)
        await world.engine.complete(await world.claim_one(), "paper")
        assert (await world.job(check.job)).state is State.COMPLETED
        found = await outputs(world, check.job)
        (stored,) = await quality(world, check.job)
        passed, reason = stored[2:]
        assert found["step_1_judge"] == {"passed": passed, "reason": reason}
        assert passed is (False if isinstance(verdict, dict) else None)
        await world.healthy()


async def test_a_larger_verdict_is_stored_whole_if_it_fits(tmp_path: Path) -> None:
    async with World(checked(OnFail.MARK), tmp_path / "ledger.db") as world:
        check = await drawn(world)
        verdict = {**BAD, "heat_map": "x" * 200}
        await world.engine.complete(check, verdict)
        assert (await outputs(world, check.job))["step_1_judge"] == verdict


@pytest.mark.parametrize(
    ("on_fail", "by_fault"),
    [
        (OnFail.RETRY, False),
        (OnFail.RETRY, True),
        (OnFail.FAIL, False),
        (OnFail.FAIL, True),
        (OnFail.MARK, True),  # an output that is stored is refused as a whole
    ],
)
async def test_a_reason_that_no_store_can_hold_is_made_readable(
    tmp_path: Path, on_fail: OnFail, by_fault: bool
) -> None:
    """U+0000 and half characters, in a batch with the verdict on another job."""
    reason = "too\0quiet\ud800"
    async with World(checked(on_fail), tmp_path / "ledger.db") as world:
        bad, good = await drawn(world), await drawn(world)
        report = (
            Failed(bad, Fault.QUALITY, reason)
            if by_fault
            else Done(bad, {"passed": False, "reason": reason})
        )
        settled = await world.engine.settle([report, Done(good, GOOD)])
        assert [type(each) for each in settled] == [Settled, Settled]
        assert await quality(world, bad.job) == [
            ("step_1_judge", "step_0_draw", False, "too?quiet?")
        ]
        assert (await world.job(good.job)).state is State.COMPLETED


async def test_an_advisory_check_whose_last_worker_is_lost_is_dead_and_can_be_replayed(
    tmp_path: Path,
) -> None:
    settings = checked(OnFail.MARK, judge={"max_attempts": 1})
    async with World(settings, tmp_path / "ledger.db") as world:
        check = await drawn(world)
        await world.pass_time(16)
        job = await world.job(check.job)
        assert (job.state, job.step) == (State.DEAD, 1)
        with pytest.raises(StaleLease):
            await world.engine.complete(check, GOOD)
        await world.engine.replay(check.job)
        await world.engine.complete(await world.claim_one(), GOOD)
        assert (await world.job(check.job)).state is State.COMPLETED


# --- resume and replay ---------------------------------------------------------------------------
@pytest.mark.parametrize("on_fail", [OnFail.FAIL, OnFail.RETRY])
async def test_replay_after_a_rejection_runs_the_work_again(
    tmp_path: Path, on_fail: OnFail
) -> None:
    """I20: the rejected output that was kept for reading gives way to the new one."""
    async with World(checked(on_fail, max_attempts=1), tmp_path / "ledger.db") as world:
        check = await drawn(world, "noise")
        await world.engine.complete(check, BAD)
        assert (await world.job(check.job)).state in (State.FAILED, State.DEAD)
        assert await outputs(world, check.job) == {"step_0_draw": "noise"}
        await world.engine.replay(check.job)
        assert await outputs(world, check.job) == {}
        again = await world.claim_one()
        assert (again.service, again.attempt) == ("draw", 1)
        await world.engine.complete(again, "picture")
        await world.engine.complete(await world.claim_one(), GOOD)
        assert await outputs(world, check.job) == {"step_0_draw": "picture", "step_1_judge": GOOD}
        await world.healthy()


async def test_a_job_that_waits_too_long_for_its_check_resumes_there(tmp_path: Path) -> None:
    async with World(checked(judge={"max_wait": 60}), tmp_path / "ledger.db") as world:
        job = await world.submit("draw")
        await world.engine.complete(await world.claim_one(), "picture")
        await world.pass_time(61)
        failed = await world.job(job)
        assert failed.error is not None
        assert (failed.error.code, failed.step) == (Code.RESOURCE_EXHAUSTED, 1)
        await world.engine.resume(job)
        check = await world.claim_one()
        assert check.context["step_0_draw"]["data"] == "picture"


# --- slots, terms, order -------------------------------------------------------------------------
async def test_the_slot_of_the_work_is_free_while_the_check_waits_and_runs(tmp_path: Path) -> None:
    """I19: the scarce slot serves the next job while a judge looks at the last one."""
    async with World(checked(limit=1, judge={"limit": 1}), tmp_path / "ledger.db") as world:
        await world.submit("draw")
        await world.engine.complete(await world.claim_one())
        second = await world.submit("draw")
        running = await world.claim(5)
        assert sorted((lease.service, lease.job == second) for lease in running) == [
            ("draw", True),
            ("judge", False),
        ]
        await slots_match(world)


async def test_the_terms_of_a_submit_are_meant_for_the_work(tmp_path: Path) -> None:
    settings = checked(judge={"timeout": 20, "max_wait": 30})
    async with World(settings, tmp_path / "ledger.db") as world:
        job = await world.submit(
            "draw",
            timeout=7_000_000,
            max_retries=9,
            backoff=(1,),
            max_wait=5,
            capabilities=("gpu",),
        )
        work, check = (await world.job(job)).plan
        assert (work.timeout, work.max_attempts, work.backoff) == (7_000_000, 10, (1,))
        assert (check.timeout, check.max_attempts, check.max_wait) == (20_000_000, 2, 30_000_000)
        assert (check.lane, check.backoff, check.quality_check) == ("judge||", (), OnFail.RETRY)
        assert work.quality_check is None


async def test_rejected_work_stands_where_its_service_puts_retries(tmp_path: Path) -> None:
    async with World(checked(retry_place=RetryPlace.FRONT), tmp_path / "ledger.db") as world:
        check = await drawn(world)
        others = [await world.submit("draw") for _ in range(3)]
        await world.engine.complete(check, BAD)
        assert [lease.job for lease in await world.claim(4)] == [check.job, *others]


async def test_a_live_job_keeps_its_check_when_the_settings_lose_it(tmp_path: Path) -> None:
    """Also the checked service is still needed: a rejection goes back to it."""
    async with World(checked(), tmp_path / "ledger.db") as world:
        job = await world.submit("draw")
        await world.engine.complete(await world.claim_one())
        await world.engine.stop()
        world.settings = catalog(service("judge"), service("print"))
        with pytest.raises(SetupError):
            await world.start()
        world.settings = catalog(service("draw"), service("judge"), service("print"))
        await world.start()
        check = await world.claim_one()
        assert (check.job, check.service) == (job, "judge")
        await world.engine.complete(check, BAD)
        assert (await world.claim_one()).service == "draw"


# --- reported twice, late, at once ---------------------------------------------------------------
@pytest.mark.parametrize("on_fail", list(OnFail))
async def test_a_rejection_reported_again_changes_nothing(tmp_path: Path, on_fail: OnFail) -> None:
    """I3: the same answer, one attempt, also twice in one batch and after the work runs again."""
    async with World(checked(on_fail), tmp_path / "ledger.db") as world:
        check = await drawn(world)
        first, twin = await world.engine.settle([Done(check, BAD), Done(check, BAD)])
        assert isinstance(first, Settled)
        assert isinstance(twin, Settled)
        assert (twin.state, twin.again) == (first.state, True)
        before = await world.job(check.job)
        again = await world.engine.complete(check, BAD)
        assert (again.state, again.again) == (before.state, True)
        if on_fail is OnFail.RETRY:
            await world.claim_one()
            assert (await world.engine.complete(check, BAD)).state is State.RUNNING
        elif on_fail is OnFail.FAIL:
            assert isinstance(
                (
                    await world.engine.settle(
                        [Failed(check, Fault.TIMEOUT, outcome=Outcome.TIMEOUT)]
                    )
                )[0],
                Stale,
            )
        assert (await world.job(check.job)).attempt == before.attempt + (on_fail is OnFail.RETRY)
        await world.healthy()


async def test_another_verdict_under_an_ended_lease_is_refused(tmp_path: Path) -> None:
    """I3: the first verdict of a lease counts."""
    async with World(checked(), tmp_path / "ledger.db") as world:
        check = await drawn(world)
        await world.engine.complete(check, BAD)
        with pytest.raises(StaleLease):
            await world.engine.complete(check, GOOD)
        assert (await world.job(check.job)).state is State.QUEUED


async def test_a_rejection_and_a_cancel_at_once_leave_one_of_the_two(tmp_path: Path) -> None:
    """I3: the token decides. A cancel that comes second finds a queued job."""
    async with World(checked(), tmp_path / "ledger.db") as world:
        for _ in range(20):
            check = await drawn(world)
            await asyncio.gather(
                world.engine.complete(check, BAD),
                world.engine.cancel(check.job),
                return_exceptions=True,
            )
            job = await world.job(check.job)
            assert (job.state, await endings(world, check.job)) == (State.CANCELLED, 1)
        assert await world.claim(5) == []
        await world.healthy()


async def test_a_late_result_of_rejected_work_is_refused(tmp_path: Path) -> None:
    """I3: the token of the first attempt is on no row any more."""
    async with World(checked(), tmp_path / "ledger.db") as world:
        job = await world.submit("draw")
        work = await world.claim_one()
        await world.engine.complete(work, "noise")
        await world.engine.complete(await world.claim_one(), BAD)
        again = await world.engine.complete(work, "noise")  # repeated: the same answer as before
        assert again.again
        with pytest.raises(StaleLease):
            await world.engine.fail(work, Fault.TRANSIENT)
        assert (await world.job(job)).attempt == 1


async def test_a_judge_that_is_lost_costs_the_check_an_attempt_and_not_the_work(
    tmp_path: Path,
) -> None:
    """I18: and its late verdict is refused."""
    async with World(checked(), tmp_path / "ledger.db") as world:
        check = await drawn(world)
        await world.pass_time(16)
        job = await world.job(check.job)
        assert (job.state, job.step, job.attempt) == (State.QUEUED, 1, 1)
        with pytest.raises(StaleLease):
            await world.engine.complete(check, BAD)
        again = await claim_until_found(world)
        assert (again.service, again.attempt) == ("judge", 2)
        assert again.context["step_0_draw"]["data"] == "picture"


async def test_a_judge_that_gives_its_check_back_costs_nothing(tmp_path: Path) -> None:
    async with World(checked(), tmp_path / "ledger.db") as world:
        check = await drawn(world)
        await world.engine.give_back(check)
        again = await world.claim_one()
        assert (again.service, again.attempt) == ("judge", 1)


@pytest.mark.parametrize("size", [10, 5_000])
async def test_outputs_of_any_size_are_discarded_and_replaced(tmp_path: Path, size: int) -> None:
    """I20: also outputs that do not fit into the job's row, and verdicts that do not."""
    async with World(checked(), tmp_path / "ledger.db") as world:
        check = await drawn(world, "x" * size)
        await world.engine.complete(check, {**BAD, "heat_map": "x" * size})
        await world.engine.complete(await world.claim_one(), "y" * size)
        verdict = {**GOOD, "heat_map": "y" * size}
        await world.engine.complete(await world.claim_one(), verdict)
        assert await outputs(world, check.job) == {
            "step_0_draw": "y" * size,
            "step_1_judge": verdict,
        }


async def test_many_verdicts_in_one_batch_settle_each_job_by_its_own(tmp_path: Path) -> None:
    """I3: one of them under a lease that is gone."""
    async with World(checked(), tmp_path / "ledger.db") as world:
        jobs = [await world.submit("draw") for _ in range(6)]
        for lease in await world.claim(6):
            await world.engine.complete(lease, lease.job)
        checks = {lease.job: lease for lease in await world.claim(6)}
        await world.engine.cancel(jobs[5])
        reports = [Done(checks[job], GOOD if i % 2 else BAD) for i, job in enumerate(jobs)]
        settled = await world.engine.settle(reports)
        assert [type(each) for each in settled] == [Settled] * 5 + [Stale]
        found = [(await world.job(job)).state for job in jobs]
        queued, completed = State.QUEUED, State.COMPLETED
        assert found == [queued, completed, queued, completed, queued, State.CANCELLED]
        assert sorted(lease.job for lease in await world.claim(6)) == sorted(jobs[0:5:2])
        await world.healthy()


async def test_a_restart_between_work_and_verdict_loses_neither(tmp_path: Path) -> None:
    """I20: the work is committed, the check waits again, and a rejection survives as well."""
    async with World(checked(), tmp_path / "ledger.db") as world:
        job = await world.submit("draw")
        await world.engine.complete(await world.claim_one(), "noise")
        await world.restart()
        check = await world.claim_one()
        assert (check.service, check.context["step_0_draw"]["data"]) == ("judge", "noise")
        await world.engine.complete(check, BAD)
        await world.restart()
        again = await world.claim_one()
        assert (again.service, again.attempt, again.context) == ("draw", 2, {})
        await world.engine.complete(again, "picture")
        await world.engine.complete(await world.claim_one(), GOOD)
        assert (await world.job(job)).state is State.COMPLETED


# --- fan-outs ------------------------------------------------------------------------------------
async def test_each_execution_of_a_fan_out_has_its_own_check(tmp_path: Path) -> None:
    async with World(checked(OnFail.FAIL), tmp_path / "ledger.db") as world:
        parent = await world.submit("draw", matrix={"n": ("1", "2")})
        for lease in await world.claim(2):
            await world.engine.complete(lease, lease.job)
        good, bad = await world.claim(2)
        await world.engine.complete(bad, BAD)
        await world.engine.complete(good, GOOD)
        assert {cell.id: cell.state for cell in await cells_of(world, parent)} == {
            good.job: State.COMPLETED,
            bad.job: State.FAILED,
        }
        whole = await world.job(parent)
        assert whole.error is not None
        assert whole.error.code is Code.CELLS_FAILED
        await world.engine.resume(parent)
        again = await world.claim_one()
        assert (again.job, again.service) == (bad.job, "draw")
        await world.engine.complete(again, "better")
        await world.engine.complete(await world.claim_one(), GOOD)
        assert (await world.job(parent)).state is State.COMPLETED
        await world.healthy()


# --- paid skips ----------------------------------------------------------------------------------
class Paid(World):
    async def __aenter__(self) -> Paid:
        await super().__aenter__()
        await self.engine.add_credits(ADA, 100, "first deposit")
        return self

    async def costs(self, spent: int) -> None:
        assert 100 - await self.engine.balance(ADA) == spent
        await self.healthy()

    async def skipped(self, name: str = "draw") -> Lease:
        """A job of 5 credits at the front; the lease of its check."""
        job = await self.submit(name, user=ADA, duration=60)
        await self.engine.skip(job)
        await self.engine.complete(await self.claim_one(), "noise")
        return await self.claim_one()


@pytest.mark.parametrize("on_fail", [OnFail.FAIL, OnFail.RETRY])
async def test_a_skip_is_refunded_if_the_only_output_was_rejected(
    tmp_path: Path, on_fail: OnFail
) -> None:
    """I14: a rejected output brought nothing. Refunded once, also if reported again."""
    settings = checked(on_fail, max_attempts=1)
    async with Paid(settings, tmp_path / "ledger.db") as world:
        check = await world.skipped()
        await world.costs(5)
        await world.engine.complete(check, BAD)
        await world.costs(0)
        await world.engine.complete(check, BAD)
        await world.costs(0)


async def end_at_its_check(world: World, check: Lease, how: str) -> None:
    if how == "dead check":
        await world.engine.complete(check, "no verdict")
    elif how == "waited too long":
        await world.engine.give_back(check)
        await world.pass_time(61)
    else:
        if how == "cancel queued":
            await world.engine.give_back(check)
        await world.engine.cancel(check.job)
    assert (await world.job(check.job)).state not in (State.QUEUED, State.RUNNING)


@pytest.mark.parametrize("how", ["dead check", "waited too long"])
async def test_a_skip_is_refunded_if_the_job_fails_before_its_check_has_passed(
    tmp_path: Path, how: str
) -> None:
    """I14: in each of the ways in which a job fails at its check."""
    async with Paid(checked(judge={"max_wait": 60}), tmp_path / "ledger.db") as world:
        await end_at_its_check(world, await world.skipped(), how)
        await world.costs(0)


@pytest.mark.parametrize("how", ["cancel queued", "cancel running"])
@pytest.mark.parametrize("on_fail", list(OnFail))
async def test_a_skip_is_not_refunded_if_the_owner_cancels_the_job_at_its_check(
    tmp_path: Path, on_fail: OnFail, how: str
) -> None:
    """I14: the owner could read the output, and would have it for nothing. It is no result."""
    async with Paid(checked(on_fail), tmp_path / "ledger.db") as world:
        check = await world.skipped()
        await end_at_its_check(world, check, how)
        await world.costs(5)
        seen = await world.engine.view(check.job)
        assert result_of(seen.job, seen.context) is None


async def test_a_skip_is_refunded_if_rejected_work_is_cancelled_before_it_runs_again(
    tmp_path: Path,
) -> None:
    """I14: the rejected output is gone."""
    async with Paid(checked(), tmp_path / "ledger.db") as world:
        check = await world.skipped()
        await world.engine.complete(check, BAD)
        await world.engine.cancel(check.job)
        await world.costs(0)


async def test_a_skip_is_not_refunded_if_an_advisory_check_waits_too_long(tmp_path: Path) -> None:
    """I14: no check can reject the output any more."""
    settings = checked(OnFail.MARK, judge={"max_wait": 60})
    async with Paid(settings, tmp_path / "ledger.db") as world:
        await end_at_its_check(world, await world.skipped(), "waited too long")
        await world.costs(5)


async def test_a_skip_is_not_refunded_once_a_check_has_passed(tmp_path: Path) -> None:
    """I14: a delivered step is delivered, whatever happens to the next one."""
    async with Paid(checked(), tmp_path / "ledger.db") as world:
        check = await world.skipped("poster")
        await world.engine.complete(check, GOOD)
        await world.engine.cancel(check.job)
        await world.costs(5)


async def test_a_skip_is_not_refunded_if_a_rejection_only_marks_the_job(tmp_path: Path) -> None:
    """I14: the owner has the output."""
    async with Paid(checked(OnFail.MARK), tmp_path / "ledger.db") as world:
        await world.engine.complete(await world.skipped(), BAD)
        await world.costs(5)


async def test_a_paid_job_whose_work_was_rejected_stays_at_the_front(tmp_path: Path) -> None:
    async with Paid(checked(), tmp_path / "ledger.db") as world:
        check = await world.skipped()
        await world.submit("draw")
        await world.engine.complete(check, BAD)
        assert (await world.claim_one()).job == check.job
        await world.costs(5)


# --- capabilities, strictness --------------------------------------------------------------------
async def test_a_worker_that_offers_only_the_check_gets_only_checks(tmp_path: Path) -> None:
    settings = checked(judge={"capabilities": frozenset({"ears"}), "overrun": Overrun.FAST})
    async with World(settings, tmp_path / "ledger.db") as world:
        judge = Worker("judge", services=frozenset({"judge"}), capabilities=frozenset({"ears"}))
        painter = Worker("painter", services=frozenset({"draw"}))
        await world.submit("draw")
        assert await world.claim(5, judge) == []
        await world.engine.complete(await world.claim_one(painter), "picture")
        assert await world.claim(5, painter) == []
        await world.engine.complete(await world.claim_one(judge), GOOD)
        assert await world.live() == 0
