"""`POST /inference`: submit a job and wait for its result on the same connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest

from fairlane.errors import StoreAway
from fairlane.model.attempt import Fault
from fairlane.model.job import Job
from fairlane.model.lease import Lease
from fairlane.model.state import State
from fairlane.model.worker import Worker
from tests import stores
from tests.api.conftest import SETTINGS
from tests.api.server import Gateway, gateway
from tests.core import core_of
from tests.world import World

pytestmark = pytest.mark.every_store

SSE = {"Accept": "text/event-stream"}
PATIENCE = 30
ASK = {"service": "work", "input_data": {"prompt": "hi"}}


async def next_lease(world: World) -> Lease:
    """The next job of the service, as soon as it is there."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for lease in await world.engine.claim(Worker("w"), 1, wait=1):
                return lease


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110 - other tasks bring it about
            await asyncio.sleep(0.01)


async def state_is(world: World, job: str, state: State) -> None:
    async def reached() -> bool:
        return (await world.job(job)).state is state

    await until(reached)


@asynccontextmanager
async def asking(served: Gateway, **more: Any) -> AsyncIterator[asyncio.Task[httpx2.Response]]:
    headers = more.pop("headers", {})
    async with served.client(headers=headers) as client:
        asked = asyncio.create_task(client.post("/inference", json={**ASK, **more}))
        try:
            yield asked
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)


class Stream:
    """The events of an inference, as they arrive."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self, kind: str) -> dict[str, Any]:
        """The data of the next event of this kind; other ones are passed over."""
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                if line.startswith("data: "):
                    event = orjson.loads(line.removeprefix("data: "))
                    if event["type"] == kind:
                        return dict(event["data"])
        raise AssertionError(f"the stream ended without {kind}")


@asynccontextmanager
async def streaming(served: Gateway, **more: Any) -> AsyncIterator[Stream]:
    async with (
        httpx2.AsyncClient(base_url=served.url, headers=SSE, timeout=PATIENCE) as client,
        client.stream("POST", "/inference", json={**ASK, **more}) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Stream(answer.aiter_lines())


# --- JSON ----------------------------------------------------------------------------------------
async def test_the_result_comes_on_the_same_connection(world: World, served: Gateway) -> None:
    async with asking(served, user_id="ada", model="m") as asked:
        lease = await next_lease(world)
        assert (lease.input, lease.model) == ({"prompt": "hi"}, "m")
        await world.engine.complete(lease, {"text": "hello"}, {"tokens": 2})
        answer = await asked
    assert (answer.status_code, answer.headers["location"]) == (200, f"/api/v1/jobs/{lease.job}")
    assert answer.json() == {
        "job_id": lease.job,
        "data": {"text": "hello"},
        "metrics": {"tokens": 2},
        "region": None,
        "attempts": 1,
    }


async def test_time_over_is_504_and_the_job_is_kept(world: World, served: Gateway) -> None:
    async with served.client() as client:
        answer = await client.post("/inference", json={**ASK, "timeout_seconds": 0.05})
    job = answer.json()["job_id"]
    assert (answer.status_code, answer.json()["code"]) == (504, "inference_timeout")
    await world.engine.sweep()
    assert (await world.job(job)).state is State.QUEUED
    assert len(served.app.app_context.inferences) == 0


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [(Fault.INVALID_INPUT, 422, "job_failed"), (Fault.TRANSIENT, 502, "job_dead")],
)
async def test_a_failed_job_is_a_problem_with_its_error(
    world: World, served: Gateway, fault: Fault, status: int, code: str
) -> None:
    async with asking(served, service="scarce") as asked:
        lease = await next_lease(world)
        await world.engine.fail(lease, fault, "no such voice")
        answer = await asked
    body = answer.json()
    assert (answer.status_code, body["code"], body["job_id"]) == (status, code, lease.job)
    assert "no such voice" in body["error"]["message"]
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_cancelled_job_is_a_conflict(world: World, served: Gateway) -> None:
    async with asking(served) as asked:
        lease = await next_lease(world)
        await world.engine.cancel(lease.job)
        answer = await asked
    assert (answer.status_code, answer.json()["code"]) == (409, "job_cancelled")
    assert answer.json()["job_id"] == lease.job


async def test_a_repeated_request_waits_for_the_same_job(world: World, served: Gateway) -> None:
    """I5: while it waits, and after it has ended."""
    key = {"Idempotency-Key": "once"}
    async with asking(served, headers=key) as first, asking(served, headers=key) as second:
        lease = await next_lease(world)
        await world.engine.complete(lease, 1)
        answers = [await first, await second]
    async with asking(served, headers=key) as third:
        answers.append(await third)
    assert {answer.json()["job_id"] for answer in answers} == {lease.job}
    assert answers[2].headers["idempotent-replayed"] == "true"
    assert await world.claim(5) == []


async def test_an_inference_is_refused_like_a_submit(world: World, served: Gateway) -> None:
    """S2: unknown names, wrong fields and rights; nothing is queued."""
    async with served.client() as client:
        for wrong, status in (
            ({**ASK, "service": "nothing"}, 422),
            ({**ASK, "timeout_seconds": 0}, 422),
            ({**ASK, "on_disconnect": "wait"}, 422),
            ({**ASK, "matrix": {"q": ["1"]}}, 422),
        ):
            answer = await client.post("/inference", json=wrong)
            assert answer.status_code == status, wrong
    async with served.client(await served.key(act_as=False)) as client:
        answer = await client.post("/inference", json={**ASK, "user_id": "ada"})
        assert (answer.status_code, answer.json()["code"]) == (422, "field_not_allowed")
    assert await world.engine.load() == (0, 0)


# --- clients that go away ------------------------------------------------------------------------
async def leave(asked: asyncio.Task[httpx2.Response]) -> None:
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)


async def waiting_job(served: Gateway) -> str:
    """The job that a connection waits for."""
    connections = served.app.app_context.inferences

    async def there() -> bool:
        return len(connections) > 0

    await until(there)
    return next(iter(connections._waiting))  # noqa: SLF001 - its id is told only in the answer


async def test_a_client_that_leaves_cancels_its_queued_job(world: World, served: Gateway) -> None:
    async with asking(served) as asked:
        job = await waiting_job(served)
        await leave(asked)
        await state_is(world, job, State.CANCELLED)
    assert await world.claim(5) == []


async def test_a_client_that_leaves_cancels_its_running_job(world: World, served: Gateway) -> None:
    async with asking(served) as asked:
        lease = await next_lease(world)
        await leave(asked)
        await state_is(world, lease.job, State.CANCELLED)


async def test_a_client_that_leaves_may_keep_its_job(world: World, served: Gateway) -> None:
    async with asking(served, on_disconnect="keep") as asked:
        job = await waiting_job(served)
        await leave(asked)

        async def gone() -> bool:
            return len(served.app.app_context.inferences) == 0

        await until(gone)
        assert (await world.job(job)).state is State.QUEUED


async def test_the_last_client_of_a_job_decides(world: World, served: Gateway) -> None:
    """Two requests with one key: when the first one leaves, the second still waits."""
    key = {"Idempotency-Key": "shared"}
    connections = served.app.app_context.inferences

    async def two() -> bool:
        return len(connections) == 2

    async def one() -> bool:
        return len(connections) == 1

    async with asking(served, headers=key) as first, asking(served, headers=key) as second:
        await until(two)
        await leave(first)
        await until(one)
        lease = await next_lease(world)
        await world.engine.complete(lease, "still")
        assert (await second).json()["data"] == "still"


async def test_a_process_that_leaves_keeps_the_jobs(world: World, tmp_path: Path) -> None:
    """The end of this process is not the client's: 503 says so, and the job goes on."""
    del tmp_path
    async with gateway(world.engine) as served:
        async with asking(served) as asked:
            job = await waiting_job(served)
            served.app.app_context.drain()
            answer = await asked
        assert (answer.status_code, answer.json()["code"]) == (503, "shutting_down")
        assert answer.json()["job_id"] == job
    assert (await world.job(job)).state is State.QUEUED


# --- a store that is away ------------------------------------------------------------------------
class AwayOnce:
    """The ledger does not answer one read of jobs, once the test says so."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch) -> None:
        self.begun = False
        self._ledger = core_of(world.engine).ledger
        self._read = self._ledger.jobs
        patch.setattr(self._ledger, "jobs", self)

    async def __call__(self, jobs: Sequence[str]) -> dict[str, Job]:
        if self.begun:
            self.begun = False
            raise StoreAway("the ledger does not answer")
        return await self._read(jobs)


async def test_an_inference_that_a_store_interrupts_names_its_job(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the id, a client could only submit the same work again."""
    away = AwayOnce(world, monkeypatch)
    async with asking(served) as asked:
        job = await waiting_job(served)
        away.begun = True
        world.engine.wake([job])
        answer = await asked
    body = answer.json()
    assert (answer.status_code, body["job_id"]) == (503, job)
    assert answer.headers["location"] == f"/api/v1/jobs/{job}"
    assert int(answer.headers["retry-after"]) > 0
    assert (await world.job(job)).state is State.QUEUED


async def test_a_stream_that_a_store_interrupts_does_not_blame_the_key(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = AwayOnce(world, monkeypatch)
    async with streaming(served) as stream:
        await stream.next("WAITING")
        job = await waiting_job(served)
        away.begun = True
        world.engine.wake([job])
        problem = await stream.next("ERROR")
    assert (problem["status"], problem["job_id"]) == (503, job)
    assert (await world.job(job)).state is State.QUEUED


# --- streams -------------------------------------------------------------------------------------
async def test_position_progress_output_and_result_are_streamed(
    world: World, served: Gateway
) -> None:
    """I33: and the last chunk comes before the result."""
    await world.engine.register(Worker("w"))
    async with streaming(served, service="scarce") as stream:
        place = await stream.next("POSITION")
        assert place["position"] == 1
        lease = await next_lease(world)
        assert (await stream.next("STEP_START"))["service"] == "scarce"
        await world.engine.progress(lease, 50, "half")
        assert (await stream.next("PROGRESS"))["text"] == "half"
        world.engine.output(lease, 0, ["Hel", {"token": "lo"}])
        first, second = await stream.next("OUTPUT"), await stream.next("OUTPUT")
        assert (first["output"], first["number"], first["dropped"]) == ("Hel", 0, 0)
        assert (second["output"], second["attempt"]) == ({"token": "lo"}, 1)
        world.engine.output(lease, 2, ["!"])
        await world.engine.complete(lease, {"text": "Hello!"})
        assert (await stream.next("OUTPUT"))["output"] == "!"
        result = await stream.next("RESULT")
    assert (result["job_id"], result["data"]) == (lease.job, {"text": "Hello!"})


async def test_a_stream_ends_with_the_problem_of_its_job(world: World, served: Gateway) -> None:
    async with streaming(served, service="scarce") as stream:
        lease = await next_lease(world)
        await world.engine.fail(lease, Fault.INVALID_INPUT, "no")
        problem = await stream.next("ERROR")
    assert (problem["status"], problem["code"], problem["job_id"]) == (422, "job_failed", lease.job)
    async with streaming(served, timeout_seconds=0.05) as stream:
        problem = await stream.next("ERROR")
    assert (problem["status"], problem["code"]) == (504, "inference_timeout")
    assert (await world.job(problem["job_id"])).state is State.QUEUED


async def test_a_stream_whose_client_leaves_cancels_its_job(world: World, served: Gateway) -> None:
    async with streaming(served) as stream:
        await stream.next("WAITING")
        lease = await next_lease(world)
    await state_is(world, lease.job, State.CANCELLED)


async def test_output_of_a_lost_lease_is_not_mixed_with_the_next(
    world: World, served: Gateway
) -> None:
    async with streaming(served) as stream:
        old = await next_lease(world)
        world.engine.output(old, 0, ["a"])
        assert (await stream.next("OUTPUT"))["attempt"] == 1
        await world.engine.give_back(old)
        new = await next_lease(world)
        world.engine.output(new, 0, ["b"])
        world.engine.output(old, 1, ["late"])
        world.engine.output(new, 3, ["c"])
        chunks = [await stream.next("OUTPUT") for _ in range(2)]
        assert [(each["output"], each["attempt"]) for each in chunks] == [("b", 2), ("c", 2)]
        assert chunks[1]["dropped"] == 2
        await world.engine.complete(new, 1)
        await stream.next("RESULT")


async def test_output_reaches_a_client_of_another_process(world: World, served: Gateway) -> None:
    """The process that runs the job shares only PostgreSQL and Redis with the one that holds the
    connection."""
    if isinstance(stores.present, stores.Embedded):
        pytest.skip("an embedded queue has one process")
    async with World(SETTINGS, world.path) as other:
        async with streaming(served) as stream:
            await stream.next("WAITING")
            subscribed = core_of(world.engine).index._wakeups._changed_channels  # type: ignore[attr-defined] # noqa: SLF001

            async def heard() -> bool:
                return not subscribed

            await until(heard)
            lease = await next_lease(other)
            other.engine.output(lease, 0, ["far", "away"])
            await other.engine.flush_output()
            await other.engine.complete(lease, "done")
            chunks = [await stream.next("OUTPUT") for _ in range(2)]
            assert [each["output"] for each in chunks] == ["far", "away"]
            assert (await stream.next("RESULT"))["data"] == "done"
        async with asking(served) as asked:
            lease = await next_lease(other)
            await other.engine.complete(lease, "plain")
            assert (await asked).json()["data"] == "plain"


async def test_many_connections_wait_without_polling(world: World, served: Gateway) -> None:
    """S13: while nothing changes, no connection reads; each is answered when its job ends."""
    if not isinstance(stores.present, stores.Embedded):
        pytest.skip("one process is enough")
    reads = 0
    ledger = core_of(world.engine).ledger
    read = ledger.jobs

    async def counted(ids: Any) -> Any:
        nonlocal reads
        reads += 1
        return await read(ids)

    connections = served.app.app_context.inferences
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=served.url, timeout=60, limits=limits) as client:
        asked = [
            asyncio.create_task(client.post("/inference", json={**ASK, "user_id": f"u{n}"}))
            for n in range(200)
        ]

        async def all_wait() -> bool:
            return len(connections) == len(asked)

        await until(all_wait)
        ledger.jobs = counted  # type: ignore[method-assign]
        for _ in range(3):
            await world.engine.sweep()
        assert reads == 0
        ledger.jobs = read  # type: ignore[method-assign]
        while leases := await world.claim(100):
            for lease in leases:
                await world.engine.complete(lease, lease.user)
        answers = await asyncio.gather(*asked)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["data"] for answer in answers}) == 200
