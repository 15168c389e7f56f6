"""S13: what a small request asks for is worked out before anything of it is built."""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fairlane.api.http.validation_errors import MAX_SUGGESTIONS
from fairlane.api.routes.status import shown
from fairlane.api.routes.submit import MAX_EXPLAINED
from fairlane.api.schemas.requests import JobRequestBody
from fairlane.engine.fanout_limits import check_matrix
from fairlane.engine.worker_coverage import uncovered
from fairlane.errors import InvalidInput
from fairlane.index.index import Depth, Stats
from fairlane.index.memory.queries import FLOWS_AT_ONCE
from fairlane.model.catalog import Catalog
from fairlane.model.job import NewJob
from fairlane.model.service import Service
from fairlane.model.worker import Worker
from tests.api.server import Gateway, gateway
from tests.core import core_of
from tests.world import TIERS, World, catalog

MANY = [str(n) for n in range(100)]
MEGABYTE = 1 << 20


def fan_out(**axes: list[str]) -> dict[str, Any]:
    return {"service": "work", "input_data": {}, "matrix": axes}


def axes(names: str, values: list[str]) -> dict[str, list[str]]:
    return dict.fromkeys(names, values)


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/jobs:batch"])
async def test_a_matrix_is_counted_before_its_combinations_are_built(
    world: World, served: Gateway, path: str
) -> None:
    """A million of them here; a request of the same size could ask for 10¹⁶."""
    job = fan_out(**axes("abc", MANY))
    single = path.endswith("jobs")
    async with served.client() as client:
        tracemalloc.start()
        try:
            answer = await client.post(path, json=job if single else {"jobs": [job]})
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    told = answer.json() if single else answer.json()["results"][0]
    assert told["status"] == 422
    assert peak < 10 * MEGABYTE
    detail = told["detail"] if single else told["error"]["detail"]
    assert "combinations" in detail
    assert "split it" in detail or "another request" in detail


def test_a_matrix_of_any_size_is_only_counted() -> None:
    with pytest.raises(InvalidInput, match=str(100**8)):
        check_matrix(axes("abcdefgh", MANY), 1000)


async def test_a_matrix_with_one_combination_too_many_is_refused(
    world: World, served: Gateway
) -> None:
    async with served.client() as client:
        for n, status in ((20, 202), (21, 422), (0, 422)):
            answer = await client.post("/api/v1/jobs", json=fan_out(question=MANY[:n]))
            assert answer.status_code == status


async def test_the_jobs_of_a_batch_have_a_thousand_combinations_together(
    world: World, served: Gateway
) -> None:
    job = fan_out(question=MANY[:20])
    async with served.client() as client:
        answer = await client.post("/api/v1/jobs:batch", json={"jobs": [job] * 51})
        results = answer.json()["results"]
        assert [each["status"] for each in results] == [202] * 50 + [422]
        assert "another request" in results[-1]["error"]["detail"]


async def test_long_values_are_not_copied_into_any_number_of_cells(tmp_path: Path) -> None:
    """Of a body of 190 KB: 768 cells with 80 KB each."""
    long = [letter * 10_000 for letter in "abcd"]
    matrix = {**axes("abcdef", long[:2]), "g": long, "h": long[:3]}
    async with (
        World(catalog(), tmp_path / "ledger.db") as world,
        gateway(world.engine) as served,
        served.client() as client,
    ):
        refused = await client.post("/api/v1/jobs", json=fan_out(**matrix))
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
        assert "characters together" in refused.json()["detail"]
        accepted = await client.post("/api/v1/jobs", json=fan_out(a=long, b=MANY))
        assert accepted.status_code == 202


@pytest.mark.every_store
@pytest.mark.usefixtures("_stores")
async def test_a_page_of_executions_ends_where_it_gets_large(tmp_path: Path) -> None:
    """200 results of 8 MB each would be 1.6 GB."""
    async with (
        World(catalog(), tmp_path / "ledger.db") as world,
        gateway(world.engine) as served,
        served.client() as client,
    ):
        job = await client.post("/api/v1/jobs", json=fan_out(question=MANY[:5]))
        for lease in await world.claim(5):
            await world.engine.complete(lease, "x" * (3 * MEGABYTE))
        path = f"/api/v1/jobs/{job.json()['job_id']}/executions"
        sizes: list[int] = []
        found: list[str] = []
        cursor = None
        while cursor or not sizes:
            sent = {"limit": 200} | ({"cursor": cursor} if cursor else {})
            page = (await client.get(path, params=sent)).json()
            sizes.append(len(page["executions"]))
            found += [each["cell"]["question"] for each in page["executions"]]
            cursor = page["next"]
        assert sizes == [3, 2]
        assert sorted(found) == MANY[:5]
        text = await client.get(path, headers={"Accept": "text/csv"})
        assert text.headers["x-next-cursor"]


async def test_what_was_meant_is_not_looked_for_in_a_thousand_wrong_jobs(
    world: World, served: Gateway
) -> None:
    """A look for similar names takes long: 20,000 of them held up the loop for six seconds."""
    wrong = {"service": "work", **{f"{name}x": 0 for name in list(JobRequestBody.model_fields)[1:]}}
    async with served.client() as client:
        answer = await client.post("/api/v1/jobs:batch", json={"jobs": [wrong] * 1000})
        results = [each["error"]["errors"] for each in answer.json()["results"]]
        assert len(results) == 1000
        meant = [sum("did you mean" in each["message"] for each in errors) for errors in results]
        assert meant == [MAX_SUGGESTIONS] * MAX_EXPLAINED + [0] * (1000 - MAX_EXPLAINED)


# --- looking at the whole queue ------------------------------------------------------------------
def instructions(work: Callable[[], object]) -> int:
    """How many instructions of Python this takes: a measure that no other process changes."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        for name, value in (("f_trace_opcodes", True), ("f_trace_lines", False)):
            setattr(frame, name, value)
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_the_status_of_twice_as_many_task_types_is_twice_the_work() -> None:
    def looked_at(n: int) -> int:
        settings = Catalog(TIERS, task_defaults=Service("task"))
        names = [f"type{i}" for i in range(n)]
        lanes = {f"{name}||": 1 for name in names}
        stats = Stats(
            depths=[Depth(name, 1, 1, 1, 0) for name in names],
            pools=[],
            breakers={},
            held=0,
            idle=0,
            lanes=lanes,
            delayed=lanes,
            oldest=lanes,
        )
        running = Counter[tuple[str, str | None]]({(name, None): 1 for name in names})
        return instructions(lambda: shown(stats, running, settings, set(names), 0))

    assert looked_at(400) < 2.5 * looked_at(200)


def test_what_nobody_can_run_is_found_without_comparing_each_lane_with_each_worker() -> None:
    def compared(n: int) -> int:
        lanes = {f"type{i}||gpu": 1 for i in range(n)}
        workers = [Worker(f"w{i}", frozenset({f"type{i}"})) for i in range(n)]
        loop = asyncio.new_event_loop()
        try:
            return instructions(lambda: loop.run_until_complete(uncovered(lanes, workers)))
        finally:
            loop.close()

    assert compared(400) < 2.5 * compared(200)


async def test_others_are_served_while_a_long_line_is_counted(world: World) -> None:
    users = [f"u{n}" for n in range(5 * FLOWS_AT_ONCE)]
    await world.submit_all([NewJob("first", user=user) for user in users])
    turns, counted = 0, asyncio.Event()

    async def take_turns() -> None:
        nonlocal turns
        while not counted.is_set():
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(take_turns())
    stats = await core_of(world.engine).index.stats()
    counted.set()
    await others
    assert sum(depth.waiting for depth in stats.depths) == len(users)
    assert turns >= 5
