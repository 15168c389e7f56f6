"""Workers of the SDK: what their functions get, and what becomes of what they return."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from fairlane import Context, FileResult, TaskFailed, Worker
from fairlane.errors import SetupError
from fairlane.model.service import Overrun, Service
from fairlane.model.state import State
from fairlane.model.worker import WorkerState
from tests.core import core_of
from tests.worker.scene import WAYS, Way, scene
from tests.world import catalog

pytestmark = [pytest.mark.parametrize("way", WAYS), pytest.mark.timeout(60)]


async def test_functions_run_tasks_async_ones_and_plain_ones_in_threads(
    tmp_path: Path, way: Way
) -> None:
    worker = Worker()
    threads: list[threading.Thread] = []

    @worker.task("add")
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @worker.task("shout")
    def shout(ctx: Context, text: str) -> dict[str, Any]:
        threads.append(threading.current_thread())
        return {"said": text.upper(), "attempt": ctx.attempt}

    @worker.task("length")
    def length(items: list[int]) -> int:
        return len(items)

    async with scene(tmp_path) as at, at.working(worker, way):
        assert await at.result((await at.run("add", {"a": 2, "b": 3})).id) == 5
        assert await at.result((await at.run("add", {"a": 2})).id) == 3
        assert await at.result((await at.run("shout", {"text": "oh"})).id) == {
            "said": "OH",
            "attempt": 1,
        }
        assert await at.result((await at.run("length", [1, 2, 3])).id) == 3
        assert threads[0] is not threading.main_thread()
        (found,) = await core_of(at.engine).ledger.workers()
        assert found[0].services == frozenset({"add", "shout", "length"})


WRONG: tuple[tuple[str, Any], ...] = (
    ("add", {"b": 1}),
    ("add", {"a": 1, "b": 2}),
    ("add", {}),
    ("add", None),
    ("nothing", 7),
    ("nothing", {"a": 1}),
)


async def test_parameters_that_do_not_fit_are_the_callers_mistake(tmp_path: Path, way: Way) -> None:
    worker = Worker()

    @worker.task("add")
    async def add(a: int) -> int:
        return a

    @worker.task("nothing")
    async def nothing() -> None: ...

    @worker.task("anything")
    async def anything(**more: int) -> int:
        return len(more)

    async with scene(tmp_path) as at, at.working(worker, way):
        for name, wrong in WRONG:
            job = await at.run(name, wrong)
            assert job.error is not None
            assert (job.state, job.error.code) == (State.FAILED, "INVALID_INPUT")
        for name, right in (("nothing", None), ("anything", {"a": 1, "b": 2}), ("add", 3)):
            assert (await at.run(name, right)).state is State.COMPLETED


async def test_errors_are_retried_unless_the_function_says_otherwise(
    tmp_path: Path, way: Way
) -> None:
    worker = Worker()
    tries: list[int] = []

    @worker.task("shaky")
    async def shaky(ctx: Context) -> int:
        tries.append(ctx.attempt)
        if ctx.attempt == 1:
            raise TimeoutError("of something else")
        return ctx.attempt

    @worker.task("hopeless")
    def hopeless() -> None:
        raise TaskFailed("the file is not a picture", code="invalid_input")

    async with scene(tmp_path) as at, at.working(worker, way):
        shaky_job = await at.world.submit("shaky")
        waits = await at.until(shaky_job, lambda job: job.attempt == 1 and job.token is None)
        assert waits.state is State.QUEUED
        (attempt,) = await at.engine.attempts(shaky_job)
        assert (attempt.message, attempt.outcome) == ("TimeoutError: of something else", "failed")
        await at.world.pass_time(3)
        assert (await at.ended(shaky_job)).state is State.COMPLETED
        assert tries == [1, 2]
        failed = await at.run("hopeless")
        assert failed.error is not None
        assert (failed.error.code, failed.error.message) == (
            "INVALID_INPUT",
            "the file is not a picture",
        )


NOT_JSON: tuple[tuple[Any, str], ...] = (
    (object(), "result is of type object"),
    ({"scores": [0.5, float("nan")]}, "result.scores[1] is nan"),
    ([{"a b": float("-inf")}, None], 'result[0]["a b"] is -inf'),
    ({"ids": {1, 2}}, "result.ids is of type set"),
    ({1: "one"}, "result has a key of type int"),
    (2**64, "result is an integer of more than 64 bits"),
)


async def test_a_result_that_is_not_json_is_the_tasks_fault(tmp_path: Path, way: Way) -> None:
    """I18: it fails at once, with where the fault is; trying again would make the same."""
    worker = Worker()
    calls: list[int] = []

    @worker.task("draw")
    async def draw(number: int) -> Any:
        calls.append(number)
        return NOT_JSON[number][0]

    async with scene(tmp_path) as at, at.working(worker, way):
        for number, (_, told) in enumerate(NOT_JSON):
            job = await at.run("draw", number)
            assert job.error is not None
            assert (job.state, job.error.code) == (State.FAILED, "SERVICE_ERROR")
            assert f"task draw: the result is not JSON: {told}" in job.error.message
        assert calls == list(range(len(NOT_JSON)))


async def test_a_cancelled_task_is_cut(tmp_path: Path, way: Way) -> None:
    """I22: an async function is cancelled, a thread sees it, and neither reports."""
    worker = Worker(capacity=2, heartbeat=1)
    begun, cut = asyncio.Event(), asyncio.Event()
    in_thread, seen = threading.Event(), threading.Event()

    @worker.task("sleep")
    async def sleep() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cut.set()

    @worker.task("spin")
    def spin(ctx: Context) -> None:
        in_thread.set()
        while not ctx.cancelled:
            seen.wait(0.01)
        seen.set()

    async with scene(tmp_path) as at, at.working(worker, way):
        sleeping, spinning = await at.world.submit("sleep"), await at.world.submit("spin")
        await begun.wait()
        await asyncio.to_thread(in_thread.wait)
        await at.engine.cancel(sleeping)
        await at.engine.cancel(spinning)
        await cut.wait()
        await asyncio.to_thread(seen.wait)
        for job in (sleeping, spinning):
            assert (await at.world.job(job)).state is State.CANCELLED


async def test_work_that_was_cut_leaves_its_place_to_the_next(tmp_path: Path, way: Way) -> None:
    """I8: the slot of a cancelled call is kept until the call is over, and no longer."""
    worker = Worker()
    begun = asyncio.Event()

    @worker.task("draw")
    async def draw(last: bool) -> None:
        begun.set()
        await (asyncio.sleep(0) if last else asyncio.Event().wait())

    strict = catalog(Service("draw", limit=1, overrun=Overrun.STRICT))
    async with scene(tmp_path, strict) as at, at.working(worker, way):
        first = await at.world.submit("draw", input={"last": False})
        await begun.wait()
        await at.engine.cancel(first)
        assert (await at.run("draw", {"last": True})).state is State.COMPLETED
        assert (await at.world.job(first)).state is State.CANCELLED


async def test_a_task_that_takes_too_long_is_cut_and_tried_again(tmp_path: Path, way: Way) -> None:
    worker = Worker()

    @worker.task("sleep", timeout=0.01)
    async def sleep(ctx: Context) -> int:
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return ctx.attempt

    async with scene(tmp_path) as at, at.working(worker, way):
        job = await at.world.submit("sleep")
        await at.until(job, lambda job: job.attempt == 1 and job.token is None)
        (attempt,) = await at.engine.attempts(job)
        assert (attempt.outcome, attempt.message) == ("timeout", "no result after 0.01 s")


async def test_the_log_says_how_a_task_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, way: Way
) -> None:
    worker = Worker()

    @worker.task("draw")
    async def draw() -> None:
        raise ValueError("no such\nbrush")

    async with scene(tmp_path) as at, at.working(worker, way):
        job = await at.world.submit("draw")
        await at.until(job, lambda job: job.attempt == 1 and job.token is None)
    said = [each.getMessage() for each in caplog.records if each.name == "fairlane.worker"]
    assert f"task {job} of type draw failed: ValueError: no such brush" in said


async def test_progress_is_told_while_it_runs(tmp_path: Path, way: Way) -> None:
    worker = Worker()
    told = asyncio.Event()

    @worker.task("draw")
    async def draw(ctx: Context) -> None:
        ctx.progress(10, "sketching")
        ctx.progress(40, "colouring")
        await told.wait()

    async with scene(tmp_path) as at, at.working(worker, way):
        job = await at.world.submit("draw")
        found = await at.until(job, lambda job: job.progress is not None)
        assert found.progress is not None
        assert (found.progress.percent, found.progress.text) == (40, "colouring")
        told.set()
        await at.ended(job)


async def test_a_report_that_is_too_long_is_cut_and_one_without_a_number_is_left_out(
    tmp_path: Path, way: Way
) -> None:
    worker = Worker()
    told = asyncio.Event()

    @worker.task("draw")
    async def draw(ctx: Context) -> None:
        ctx.progress(100.5, "line " * 100)
        ctx.progress(float("nan"), "nothing")
        await told.wait()

    async with scene(tmp_path) as at, at.working(worker, way):
        job = await at.world.submit("draw")
        found = await at.until(job, lambda job: job.progress is not None)
        assert found.progress is not None
        assert (found.progress.percent, found.progress.text) == (100, "line " * 40)
        told.set()
        await at.ended(job)


async def test_a_task_may_return_a_file(tmp_path: Path, way: Way) -> None:
    worker = Worker()

    @worker.task("draw")
    async def draw(kind: str) -> Any:
        pixels = b"\x89PNG\x00\xff"
        drawn: dict[str, bytes | FileResult | list[bytes]] = {
            "plain": pixels,
            "typed": FileResult(pixels, "image/png"),
            "list": [pixels],
        }
        return drawn[kind]

    async with scene(tmp_path) as at, at.working(worker, way):
        for kind, content_type in (
            ("plain", "application/octet-stream"),
            ("typed", "image/png"),
        ):
            job = await at.run("draw", {"kind": kind})
            assert FileResult.read(await at.result(job.id)) == FileResult(
                b"\x89PNG\x00\xff", content_type
            )
        error = (await at.run("draw", {"kind": "list"})).error
        assert error is not None
        assert "result[0] is of type bytes" in error.message


async def test_a_model_is_loaded_once_for_the_tasks_that_need_it(tmp_path: Path, way: Way) -> None:
    loads: list[str] = []
    reported: list[bool] = []

    def load(name: str) -> str:
        loads.append(name)
        return f"weights of {name}"

    worker = Worker(loader=load, capacity=1)

    @worker.task("draw")
    async def draw(ctx: Context) -> Any:
        return ctx.model

    async with scene(tmp_path) as at, at.working(worker, way):
        for model in ("flux", "flux", "sdxl"):
            job = await at.run("draw", model=model)
            assert await at.result(job.id) == f"weights of {model}"
            _, context = await at.engine.payload(job.id)
            reported.append("load_seconds" in str(context))
        assert await at.result((await at.run("draw")).id) is None
        assert loads == ["flux", "sdxl"]
        assert reported == [True, False, True]


async def test_a_drained_worker_finishes_what_it_runs_or_gives_it_back(
    tmp_path: Path, way: Way
) -> None:
    """What is given back costs no attempt."""
    patient, hasty = Worker(), Worker(grace=0)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> str:
        begun.set()
        await go_on.wait()
        return "done"

    patient.task("hold")(hold)
    hasty.task("hold")(hold)
    async with scene(tmp_path) as at:
        async with at.working(patient, way):
            job = await at.world.submit("hold")
            await begun.wait()
            patient.drain()
            asyncio.get_running_loop().call_later(0.05, go_on.set)
        assert (await at.world.job(job)).state is State.COMPLETED
        begun.clear()
        go_on.clear()
        async with at.working(hasty, way):
            job = await at.world.submit("hold")
            await begun.wait()
        found = await at.world.job(job)
        assert (found.state, found.attempt) == (State.QUEUED, 0)
        states = {worker.state for worker, _ in await core_of(at.engine).ledger.workers()}
        assert states == {WorkerState.DEAD}


async def test_a_worker_offers_what_its_tasks_say(tmp_path: Path, way: Way) -> None:
    """And a task that nobody can run does not stand in its way."""
    worker = Worker(capabilities={"ram"})

    @worker.task("resize", capabilities={"gpu"})
    async def resize() -> str:
        return "small"

    async with scene(tmp_path) as at, at.working(worker, way):
        never = await at.world.submit("resize", capabilities=("tpu",))
        assert (await at.run("resize", capabilities=("gpu", "ram"))).state is State.COMPLETED
        assert (await at.world.job(never)).state is State.QUEUED
        assert not await at.engine.is_runnable(await at.world.job(never))


async def test_many_small_tasks_go_through_a_worker(tmp_path: Path, way: Way) -> None:
    worker = Worker(capacity=20)
    ran: list[int] = []

    @worker.task("note")
    async def note(number: int) -> int:
        ran.append(number)
        return number

    async with scene(tmp_path) as at, at.working(worker, way):
        jobs = [await at.world.submit("note", input=n) for n in range(200)]
        for job in jobs:
            assert (await at.ended(job)).state is State.COMPLETED
        assert sorted(ran) == list(range(200))


async def test_a_worker_without_tasks_says_so(tmp_path: Path, way: Way) -> None:
    worker = Worker()
    with pytest.raises(SetupError, match="has no tasks"):
        await worker.serve("http://127.0.0.1:9")
    worker.task("one")(print)
    with pytest.raises(SetupError, match="two functions"):
        worker.task("one")(print)
