"""Jobs of several steps, jobs that need several pools, and jobs of many executions."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import orjson
import pytest

from fairlane.engine.core import publish
from fairlane.errors import InvalidInput, StaleLease
from fairlane.ledger.messages import Filter, Settled
from fairlane.model.attempt import Fault
from fairlane.model.catalog import Catalog, Limits
from fairlane.model.event import EventType
from fairlane.model.job import Job, NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Fairness, Provider, Region, Service
from fairlane.model.state import Code, State
from fairlane.model.worker import Worker
from tests.conformance.acts import (
    cells_of,
    claim_until_found,
    endings,
    run_all,
    slots_match,
    states,
    types,
)
from tests.core import core_of
from tests.ledger_items import submission, with_cells
from tests.world import World, catalog


def step(name: str, **more: object) -> Service:
    return Service(name, fairness=Fairness.NONE, **more)  # type: ignore[arg-type]


def work(**more: object) -> Service:
    return step("work", **more)


async def shown(world: World, parent: str) -> list[Job]:
    """What is left of its cells."""
    return (await world.engine.list_jobs(Filter(parent=parent))).jobs


def opposite() -> Catalog:
    """Two services of one slot each, used in both orders, under providers that overlap."""
    return catalog(
        step("a", limit=1, provider="x"),
        step("b", limit=1, provider="y"),
        step("c", limit=2, provider="x"),
        step("d", limit=2, provider="y"),
        providers=[Provider("x", limit=1), Provider("y", limit=2)],
        pipelines={
            "ab": ("a", "b"),
            "ba": ("b", "a"),
            "cdc": ("c", "d", "c"),
            "dab": ("d", "a", "b"),
        },
    )


def three_steps(**more: object) -> Catalog:
    names = ("first", "second", "third")
    return catalog(*(step(name, **more) for name in names), pipelines={"all": names})


# --- I19 -----------------------------------------------------------------------------------
async def holds_only_what_runs(world: World, running: list[Lease]) -> None:
    """Every slot belongs to a lease that runs now, and to none that waits."""
    rows = await core_of(world.engine).ledger.slots()
    assert {row.token for row in rows} <= {lease.token for lease in running}
    assert len({(row.slot.pool, row.slot.n) for row in rows}) == len(rows)


@pytest.mark.parametrize("block", range(4))
async def test_two_services_in_opposite_order_never_deadlock(tmp_path: Path, block: int) -> None:
    """I19: with one slot each and pools that overlap, over many seeds: something can always run,
    and everything is completed."""
    async with World(opposite(), tmp_path / "ledger.db") as world:
        for seed in range(block * 10, block * 10 + 10):
            dice = random.Random(seed)
            jobs = await world.submit_all(
                [NewJob(dice.choice(["ab", "ba", "cdc", "dab"])) for _ in range(8)]
            )
            running: list[Lease] = []
            for _ in range(400):
                worker = Worker(f"w{dice.randrange(3)}")
                if dice.random() < 0.5:
                    running += await world.claim(dice.randrange(1, 4), worker)
                elif running:
                    lease = running.pop(dice.randrange(len(running)))
                    await world.engine.complete(lease)
                if not running:
                    running += await world.claim(1, worker)
                    if not running:
                        break  # nothing runs and nothing can be claimed: done, or a deadlock
                if dice.random() < 0.1:
                    await holds_only_what_runs(world, running)
            assert await states(world, jobs) == {State.COMPLETED: 8}
        await world.healthy()
        assert await core_of(world.engine).ledger.slots() == []


async def test_a_job_that_lacks_one_of_its_pools_holds_none_of_them(tmp_path: Path) -> None:
    """I19: all slots or none; others get past a job that waits for its second pool."""
    settings = catalog(
        step("wide", limit=2, provider="x"),
        step("free", limit=2),
        step("blocker", provider="x"),
        providers=[Provider("x", limit=1)],
    )
    async with World(settings, tmp_path / "ledger.db") as world:
        await world.submit("blocker")
        blocker = await world.claim_one()
        wide, free = await world.submit("wide"), await world.submit("free")
        leases = await world.claim(5)
        assert [lease.job for lease in leases] == [free]
        await holds_only_what_runs(world, [blocker, *leases])
        pools = {pool.pool: pool.held for pool in (await world.engine.overview()).stats.pools}
        assert pools == {"svc:wide": 0, "prov:x": 1, "svc:free": 1}
        await world.engine.complete(blocker)
        assert (await world.claim_one()).job == wide


async def test_a_job_between_two_steps_holds_no_slot_and_no_worker(tmp_path: Path) -> None:
    """I19: a pipeline holds nothing while it waits for its next step."""
    settings = catalog(step("a", limit=1), step("b", limit=1), pipelines={"ab": ("a", "b")})
    async with World(settings, tmp_path / "ledger.db") as world:
        await world.submit("b")
        busy = await world.claim_one()
        job = await world.submit("ab")
        await world.engine.complete(await world.claim_one())
        waiting = await world.job(job)
        assert (waiting.state, waiting.step, waiting.token) == (State.QUEUED, 1, None)
        await holds_only_what_runs(world, [busy])
        await slots_match(world)
        other = await world.submit("a")
        assert (await world.claim_one()).job == other


async def test_a_retry_in_its_back_off_holds_no_slot(tmp_path: Path) -> None:
    """I19: waiting for its time is waiting: the slot is somebody else's."""
    async with World(catalog(step("work", limit=1)), tmp_path / "ledger.db") as world:
        await world.submit()
        await world.engine.fail(await world.claim_one())
        assert await core_of(world.engine).ledger.slots() == []
        other = await world.submit()
        assert (await world.claim_one()).job == other


# --- I20 -----------------------------------------------------------------------------------
async def test_a_step_follows_the_committed_success_of_the_one_before(tmp_path: Path) -> None:
    """I20: one claim runs one step; each sees the outputs before it; each runs once."""
    async with World(three_steps(), tmp_path / "ledger.db") as world:
        job = await world.submit("all", input={"n": 0})
        for number, name in enumerate(("first", "second", "third")):
            lease = await world.claim_one()
            assert (lease.job, lease.step, lease.service, lease.attempt) == (job, number, name, 1)
            assert [key for key in lease.context if not key.endswith("__attempts")] == [
                f"step_{i}_{done}" for i, done in enumerate(("first", "second")[:number])
            ]
            assert await world.claim(5, Worker("another")) == []
            await world.engine.complete(lease, {"n": number})
        view = await world.engine.view(job)
        assert view.job.state is State.COMPLETED
        outputs = [
            view.context[f"step_{i}_{n}"]["data"]
            for i, n in enumerate(("first", "second", "third"))
        ]
        assert outputs == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert (await types(world, job)).count(EventType.STEP_START) == 3
        await world.healthy()


async def test_completing_a_step_again_and_again_makes_one_successor(tmp_path: Path) -> None:
    """I20: exactly one successor, and the output that was written first stays."""
    async with World(three_steps(), tmp_path / "ledger.db") as world:
        job = await world.submit("all")
        lease = await world.claim_one()
        outcomes = await asyncio.gather(
            *(world.engine.complete(lease, {"answer": n}) for n in range(20))
        )
        assert [outcome.again for outcome in outcomes].count(False) == 1
        won = [outcome.again for outcome in outcomes].index(False)
        (second,) = await world.claim(10)
        assert second.step == 1
        assert second.context["step_0_first"]["data"] == {"answer": won}
        again = await world.engine.complete(lease, {"answer": "later"})
        assert again.again
        assert (await world.engine.view(job)).context["step_0_first"]["data"] == {"answer": won}
        assert await world.claim(10) == []
        assert len(await world.engine.attempts(job)) == 1


async def test_a_failed_step_makes_no_successor_and_is_all_that_is_run_again(
    tmp_path: Path,
) -> None:
    """I20: a retry re-runs only the failed step, with attempts of its own."""
    async with World(three_steps(max_attempts=3), tmp_path / "ledger.db") as world:
        job = await world.submit("all")
        runs: Counter[int] = Counter()
        while (await world.job(job)).live:
            lease = await claim_until_found(world)
            runs[lease.step] += 1
            assert lease.attempt == runs[lease.step]
            if lease.step == 1 and lease.attempt < 3:
                await world.engine.fail(lease)
                assert (await world.job(job)).step == 1
            else:
                await world.engine.complete(lease, {"run": runs[lease.step]})
        assert runs == {0: 1, 1: 3, 2: 1}
        view = await world.engine.view(job)
        assert view.job.state is State.COMPLETED
        assert view.context["step_1_second"]["data"] == {"run": 3}


async def test_a_replayed_job_continues_at_the_step_that_failed(tmp_path: Path) -> None:
    """I20: dead at its second step, replayed: the first is never called again."""
    async with World(three_steps(max_attempts=1), tmp_path / "ledger.db") as world:
        job = await world.submit("all")
        await world.engine.complete(await world.claim_one(), {"kept": 1})
        await world.engine.fail(await world.claim_one())
        assert (await world.job(job)).state is State.DEAD
        await world.engine.replay(job)
        lease = await world.claim_one()
        assert (lease.step, lease.attempt) == (1, 1)
        assert lease.context["step_0_first"]["data"] == {"kept": 1}
        await world.engine.complete(lease)
        await world.engine.complete(await world.claim_one())
        assert (await world.job(job)).state is State.COMPLETED


async def test_a_resumed_job_continues_at_the_step_that_found_no_room(tmp_path: Path) -> None:
    """I20: resume goes on at the failed step and keeps what earlier steps have made."""
    async with World(three_steps(max_wait=60), tmp_path / "ledger.db") as world:
        job = await world.submit("all")
        await world.engine.complete(await world.claim_one(), {"kept": 1})
        await world.pass_time(60)
        found = await world.job(job)
        assert found.error is not None
        assert (found.state, found.error.code) == (State.FAILED, Code.RESOURCE_EXHAUSTED)
        await world.engine.resume(job)
        lease = await world.claim_one()
        assert (lease.step, lease.context["step_0_first"]["data"]) == (1, {"kept": 1})
        await world.engine.complete(lease)
        await world.engine.complete(await world.claim_one())
        assert (await world.job(job)).state is State.COMPLETED


async def test_the_waiting_of_earlier_steps_counts_for_the_next(tmp_path: Path) -> None:
    """I20: the next step goes in line with the waiting it has earned."""
    async with World(three_steps(), tmp_path / "ledger.db") as world:
        old = await world.submit("all")
        await world.pass_time(100)
        lease = await world.claim_one()
        young = await world.submit("second")
        await world.pass_time(10)
        await world.engine.complete(lease)
        assert (await world.claim_one()).job == old
        assert (await world.claim_one()).job == young


@pytest.mark.parametrize("seed", range(4))
async def test_a_finished_step_is_never_handed_out_again(tmp_path: Path, seed: int) -> None:
    """I20: over failures, vanished workers, rebuilds and restarts: every step succeeds once."""
    dice = random.Random(seed)
    async with World(three_steps(max_attempts=30), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("all") for _ in range(6)])
        done: Counter[tuple[str, int]] = Counter()
        for _ in range(400):
            for lease in await world.claim(dice.randrange(1, 4)):
                assert done[lease.job, lease.step] == 0
                assert all(done[lease.job, before] == 1 for before in range(lease.step))
                match dice.randrange(4):
                    case 0:
                        await world.engine.fail(lease)
                    case 1:
                        pass
                    case _:
                        outcome = await world.engine.complete(lease, lease.fence)
                        assert not outcome.again
                        done[lease.job, lease.step] += 1
            match dice.randrange(20):
                case 0:
                    await world.restart()
                case 1:
                    await world.engine.rebuild()
                case _:
                    pass
            await world.pass_time(dice.randrange(20))
            if sum(done.values()) == 18:
                break
        assert await states(world, jobs) == {State.COMPLETED: 6}
        assert set(done.values()) == {1}
        await world.healthy()


# --- fan-out -------------------------------------------------------------------------------
MATRIX = {"question": ("q1", "q2", "q3"), "model": ("m1", "m2"), "region": ("eu", "us")}


def regional(**more: object) -> Catalog:
    return catalog(step("ask", regions={"eu": Region("eu"), "us": Region("us")}, **more))


def here(region: str) -> Worker:
    return Worker(f"w-{region}", region=region)


async def test_outputs_that_are_too_large_together_fail_the_step(tmp_path: Path) -> None:
    """Each is small enough; the first one stays as it is."""
    services = [Service("one"), Service("two")]
    settings = catalog(
        *services, pipelines={"both": ("one", "two")}, limits=Limits(context_bytes=1_000)
    )
    async with World(settings, tmp_path / "ledger.db") as world:
        job = await world.submit("both")
        for _ in range(2):
            await world.engine.complete(await world.claim_one(), "x" * 600)
        view = await world.engine.view(job)
        assert view.job.error is not None
        assert view.job.error.code is Code.RESULT_TOO_LARGE
        assert "step_0_one" in view.context
        assert "step_1_two" not in view.context


async def test_a_model_of_a_matrix_is_a_name_like_any_other(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        for models in (("a", "b|c"), ("a", "b" * 101)):
            with pytest.raises(InvalidInput, match="a model name"):
                await world.submit(matrix={"model": models})
        assert await world.engine.count(State.QUEUED) == 0


async def test_a_matrix_makes_one_execution_for_every_combination(tmp_path: Path) -> None:
    """I20: questions × models × regions: each cell runs once, in its region, with its model."""
    async with World(regional(), tmp_path / "ledger.db") as world:
        parent = await world.submit("ask", input={"lang": "en"}, matrix=MATRIX)
        assert (await world.job(parent)).cells == 12
        seen = []
        for region in ("eu", "us"):
            for lease in await world.claim(20, here(region)):
                assert lease.input["lang"] == "en"
                assert (lease.input["model"], lease.input["region"]) == (lease.model, region)
                seen.append((lease.input["question"], lease.model, region))
                assert (await world.job(parent)).state is State.RUNNING
                await world.engine.complete(lease, {"said": seen[-1]})
        assert len(seen) == len(set(seen)) == 12
        assert (await world.job(parent)).state is State.COMPLETED
        cells = await cells_of(world, parent)
        assert {cell.state for cell in cells} == {State.COMPLETED}
        assert [tuple((cell.cell or {}).values()) for cell in cells] == [
            (q, m, r) for q in MATRIX["question"] for m in MATRIX["model"] for r in MATRIX["region"]
        ]
        assert await endings(world, parent) == 1
        await world.healthy()


LONG, SHORT = {"text": "x" * 200_000, "q": "none"}, {"text": "y", "q": "none"}


@pytest.mark.parametrize("sent", [LONG, SHORT, None])
async def test_every_cell_is_given_its_parents_input_with_its_own_values_over_it(
    tmp_path: Path, sent: dict[str, str] | None
) -> None:
    """Also after a restart, in another try, and when it is looked at."""
    async with World(catalog(work(max_attempts=2)), tmp_path / "ledger.db") as world:
        parent = await world.submit(input=sent, matrix={"q": ("1", "2"), "r": ("3",)})
        wanted = {
            cell.id: {**(sent or {}), **(cell.cell or {})} for cell in await shown(world, parent)
        }
        for fault in (Fault.TRANSIENT, Fault.TRANSIENT):
            leases = await world.claim(5)
            assert {lease.job: lease.input for lease in leases} == wanted
            for lease in leases:
                await world.engine.fail(lease, fault)
            await world.restart()
            await world.pass_time(600)
        await world.engine.replay(parent)
        for lease in await world.claim(5):
            assert lease.input == wanted[lease.job]
            assert (await world.engine.view(lease.job)).input == wanted[lease.job]
        assert (await world.engine.view(parent)).input == sent


async def test_the_input_of_a_fan_out_is_kept_for_as_long_as_a_cell_may_need_it(
    tmp_path: Path,
) -> None:
    """I30: a dead cell outlives all finished jobs, and can be replayed."""
    limits = Limits(keep_finished=3600, keep_dead=36_000)
    settings = catalog(work(max_attempts=1), limits=limits)
    async with World(settings, tmp_path / "ledger.db") as world:
        parent = await world.submit(input=LONG, matrix={"q": ("1", "2")})
        good, bad = await world.claim(2)
        await world.engine.complete(good)
        await world.engine.fail(bad, Fault.TRANSIENT)
        await world.pass_time(7200, sweeps=20)
        assert [cell.id for cell in await shown(world, parent)] == [bad.job]
        await world.engine.replay(bad.job)
        assert (await world.claim_one()).input == bad.input


async def test_cells_that_were_written_with_inputs_of_their_own_keep_them(tmp_path: Path) -> None:
    """As earlier versions wrote them."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        for text in ('{"mine":1}', '{"mine":"' + "x" * 10_000 + '"}'):
            parent = submission(world)
            cells = with_cells(parent, world, 2).cells
            own = tuple(cell._replace(input=text) for cell in cells)
            written = await core_of(world.engine).ledger.submit([parent._replace(cells=own)])
            await publish(core_of(world.engine), [cell.id for cell in own])
            core_of(world.engine).ledger.published(written.receipts)
            for lease in await world.claim(2):
                assert lease.input == orjson.loads(text)
                assert (await world.engine.view(lease.job)).input == lease.input
                await world.engine.complete(lease)


async def test_a_matrix_whose_combinations_are_large_together_is_refused(tmp_path: Path) -> None:
    """A request of 90 KB would be kept as 70 MB."""
    many = {f"axis{n}": ("x" * 10_000,) for n in range(7)}
    async with World(catalog(), tmp_path / "ledger.db") as world:
        with pytest.raises(InvalidInput, match="to the input"):
            await world.submit(matrix={**many, "n": tuple(map(str, range(1000)))})
        with pytest.raises(InvalidInput, match="at most 1048576 are allowed"):
            await world.submit(input={"a": "x" * 1_048_500}, matrix={"n": ("x" * 1000,)})
        await world.submit(input={"n": "x" * 1_048_500}, matrix={"n": ("x" * 1000,)})


@pytest.mark.embedded
async def test_the_input_of_a_fan_out_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with World(catalog(), path) as world:
        await world.submit(input=LONG, matrix={"n": tuple(map(str, range(1000)))})
    assert path.stat().st_size < 3_000_000


async def test_the_last_two_cells_end_their_parent_exactly_once(tmp_path: Path) -> None:
    """I20: 200 fan-outs whose last two cells are settled at the same time: one end each."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        dice = random.Random(1)
        for _ in range(20):
            parents = await world.submit_all(
                [NewJob("work", matrix={"q": ("1", "2")}) for _ in range(10)]
            )
            leases = await world.claim(20)
            assert len(leases) == 20
            dice.shuffle(leases)
            outcomes = await asyncio.gather(*(world.engine.complete(lease) for lease in leases))
            ended = [outcome.ended_parent for outcome in outcomes if outcome.ended_parent]
            assert sorted(ended) == sorted(parents)
            assert await states(world, parents) == {State.COMPLETED: 10}
            assert [await endings(world, parent) for parent in parents] == [1] * 10
        await world.healthy()


async def test_cells_that_end_in_different_ways_at_once_end_their_parent_once(
    tmp_path: Path,
) -> None:
    """I20: completed, failed and cancelled cells in any order: the parent ends once, as it must."""
    dice = random.Random(2)
    async with World(catalog(), tmp_path / "ledger.db") as world:
        for _ in range(40):
            parent = await world.submit(matrix={"q": ("1", "2", "3")})
            leases = await world.claim(3)
            bad = False
            acts = []
            for lease in leases:
                how = dice.randrange(3)
                bad |= how > 0
                if how == 0:
                    acts.append(world.engine.complete(lease))
                elif how == 1:
                    acts.append(world.engine.fail(lease, Fault.INVALID_INPUT))
                else:
                    acts.append(world.engine.cancel(lease.job))  # type: ignore[arg-type]
            dice.shuffle(acts)
            await asyncio.gather(*acts)
            found = await world.job(parent)
            assert found.state is (State.FAILED if bad else State.COMPLETED)
            assert await endings(world, parent) == 1
        await world.healthy()


async def test_a_dead_cell_fails_its_parent_and_its_replay_completes_it(tmp_path: Path) -> None:
    """I20: CELLS_FAILED; the replayed cell reopens the parent, alone is run again, and ends it."""
    async with World(catalog(step("work", max_attempts=1)), tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix={"q": ("1", "2", "3")})
        first, *others = await world.claim(3)
        await world.engine.fail(first)
        assert (await world.job(parent)).state is State.RUNNING
        for lease in others:
            await world.engine.complete(lease)
        found = await world.job(parent)
        assert found.error is not None
        assert (found.state, found.error.code) == (State.FAILED, Code.CELLS_FAILED)
        await world.engine.replay(first.job)
        again = await world.job(parent)
        assert (again.state, again.error, again.finished_at) == (State.RUNNING, None, None)
        (lease,) = await world.claim(5)
        assert (lease.job, lease.attempt) == (first.job, 1)
        await world.engine.complete(lease)
        assert (await world.job(parent)).state is State.COMPLETED
        assert (await world.job(parent)).error is None
        await world.healthy()


async def test_a_failed_fan_out_is_resumed_at_its_failed_cells(tmp_path: Path) -> None:
    """I20: CELLS_FAILED is resumable: the cells that did not complete run again, no other."""
    async with World(catalog(step("work", max_attempts=1)), tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix={"q": ("1", "2", "3", "4")})
        leases = await world.claim(4)
        for lease in leases[:2]:
            await world.engine.complete(lease)
        for lease in leases[2:]:
            await world.engine.fail(lease)
        await world.engine.resume(parent)
        assert (await world.job(parent)).state is State.RUNNING
        assert sorted(await run_all(world)) == sorted(lease.job for lease in leases[2:])
        assert (await world.job(parent)).state is State.COMPLETED
        await world.healthy()


async def test_cancelling_a_fan_out_cancels_all_its_cells(tmp_path: Path) -> None:
    """I20: running, waiting and delayed ones; finished ones stay; nothing of it runs later."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix={"q": ("1", "2", "3", "4")})
        done, failed, running = await world.claim(3)
        await world.engine.complete(done)
        await world.engine.fail(failed)
        await world.engine.cancel(parent)
        cells = {cell.id: cell.state for cell in await cells_of(world, parent)}
        assert cells.pop(done.job) is State.COMPLETED
        assert set(cells.values()) == {State.CANCELLED}
        assert (await world.job(parent)).state is State.CANCELLED
        with pytest.raises(StaleLease) as refused:
            await world.engine.complete(running)
        assert refused.value.state == "cancelled"
        await world.pass_time(100, sweeps=30)
        assert await world.claim(10) == []
        assert await endings(world, parent) == 1
        await world.healthy()


async def test_a_fan_out_that_found_no_room_fails_once_with_its_cells(tmp_path: Path) -> None:
    """I20: its cells waited too long: each is RESOURCE_EXHAUSTED, the parent CELLS_FAILED, once."""
    async with World(catalog(step("work", max_wait=60)), tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix={"q": ("1", "2", "3")})
        await world.pass_time(60, sweeps=3)
        cells = await cells_of(world, parent)
        assert {cell.error.code if cell.error else None for cell in cells} == {
            Code.RESOURCE_EXHAUSTED
        }
        found = await world.job(parent)
        assert found.error is not None
        assert (found.state, found.error.code) == (State.FAILED, Code.CELLS_FAILED)
        assert await endings(world, parent) == 1
        await world.healthy()
        await world.engine.resume(parent)
        assert len(await run_all(world)) == 3
        assert (await world.job(parent)).state is State.COMPLETED


async def test_a_fan_out_survives_a_restart_in_the_middle(tmp_path: Path) -> None:
    """I20: finished cells stay finished, the others run, the parent ends once."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        parent = await world.submit(matrix={"q": tuple("12345")})
        leases = await world.claim(3)
        await world.engine.complete(leases[0])
        await world.restart()
        outcome = await world.engine.complete(leases[1])
        assert isinstance(outcome, Settled)
        await world.pass_time(16)
        await world.pass_time(3)
        assert len(await run_all(world)) == 3
        assert (await world.job(parent)).state is State.COMPLETED
        assert await endings(world, parent) == 1
        await world.healthy()
