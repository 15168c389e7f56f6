"""What a service is sent, and what its answers become."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import orjson
import pytest
from aiohttp import web

from fairlane.demo.services import SimulatedExecution, SimulatedService
from fairlane.dispatch.service_call import checked
from fairlane.dispatch.service_responses import retry_after
from fairlane.errors import SetupError
from fairlane.model.attempt import Fault
from fairlane.model.endpoint import Endpoint
from fairlane.model.service import Region
from fairlane.model.state import Code, State
from fairlane.presets import gateway
from tests.core import core_of
from tests.dispatch.scene import Held, called, four_services, scene
from tests.world import catalog

only_http = pytest.mark.embedded
"""What the stores are makes no difference here."""


async def test_a_pipeline_runs_through_its_services_and_each_sees_what_came_before(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path, *four_services(), settings=gateway()) as at:
        job = await at.run("full_pipeline", input={"prompt": "a robot"}, user="ada")
        assert job.state is State.COMPLETED
        last = at.services["model_3d_gen"].calls[0]
        assert (last.job, last.step, last.attempt) == (job.id, 3, 1)
        assert last.params == {"prompt": "a robot"}
        assert last.context["step_0_prompt_enhancer"]["data"]["made_by"] == "prompt_enhancer"
        view = await at.world.engine.view(job.id)
        assert view.context["step_3_model_3d_gen"] == {
            "status": "SUCCESS",
            "data": {"made_by": "model_3d_gen", "for": job.id},
            "metrics": {"service": "model_3d_gen", "execution_time_ms": 0},
        }
        assert view.context["step_3_model_3d_gen__attempts"] == 1
        assert [len(each.calls) for each in at.services.values()] == [1, 1, 1, 1]


@only_http
@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (400, Code.INVALID_INPUT, "work answered 400: the prompt is too long"),
        (404, Code.INVALID_INPUT, "work answered 404: the prompt is too long"),
        (422, Code.INVALID_INPUT, "work answered 422: the prompt is too long"),
        (500, Code.SERVICE_ERROR, "work answered 500: the prompt is too long"),
        (501, Code.SERVICE_ERROR, "work answered 501: the prompt is too long"),
        (302, Code.SERVICE_ERROR, "work answered 302: redirects are not followed"),
    ],
)
async def test_an_answer_that_no_retry_can_help_fails_the_job(
    tmp_path: Path, status: int, code: Code, said: str
) -> None:
    async with scene(tmp_path) as at:
        at.service.switches.status = status
        at.service.switches.headers = {"Location": "http://127.0.0.1:1/elsewhere"}
        at.service.switches.body = b'{"detail": "the prompt is too long"}'
        job = await at.run()
        assert (job.state, job.error) == (State.FAILED, (code, said))
        assert len(at.service.calls) == 1


@only_http
@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_service_that_is_away_or_full_is_asked_again(tmp_path: Path, status: int) -> None:
    async with scene(tmp_path) as at:
        at.service.switches.status = status
        job = await at.world.submit()
        await at.until_queued(job)
        (attempt,) = await at.world.engine.attempts(job)
        assert attempt.fault is Fault.UNAVAILABLE
        at.service.switches.status = 0
        await at.world.pass_time(2)
        assert (await at.ended(job)).state is State.COMPLETED
        assert [call.attempt for call in at.service.calls] == [1, 2]


@only_http
async def test_a_service_can_add_answers_that_are_worth_another_try(tmp_path: Path) -> None:
    endpoint = Endpoint("", retry_on=frozenset({500}))
    async with scene(tmp_path, endpoint=endpoint) as at:
        at.service.switches.status = 500
        job = await at.world.submit()
        await at.until_queued(job)
        (attempt,) = await at.world.engine.attempts(job)
        assert attempt.fault is Fault.TRANSIENT
        at.service.switches.status = 0
        await at.world.pass_time(2)
        assert (await at.ended(job)).state is State.COMPLETED


@only_http
async def test_a_job_that_fails_for_good_after_its_attempts_is_dead(tmp_path: Path) -> None:
    endpoint = Endpoint("", retry_on=frozenset({500}))
    async with scene(tmp_path, endpoint=endpoint) as at:
        at.service.switches.status = 500
        job = await at.world.submit()
        for used in (1, 2, 3):
            await at.service.until(lambda service, used=used: len(service.calls) == used)  # type: ignore[misc]
            if used < 3:
                await at.until_queued(job)
                await at.world.pass_time(60)
        ended = await at.ended(job)
        assert ended.state is State.DEAD
        assert ended.error is not None
        assert ended.error.code is Code.MAX_ATTEMPTS


@only_http
async def test_the_service_says_when_to_come_back(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        at.service.switches.status = 503
        at.service.switches.headers = {"Retry-After": "120"}
        job = await at.until_queued(await at.world.submit())
        assert job.ready_at >= at.world.clock.now() + 120_000_000


def test_retry_after_is_a_number_or_a_date() -> None:
    date = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    now = round(date.timestamp() * 1_000_000)
    later = format_datetime(date + timedelta(seconds=90), usegmt=True)
    assert retry_after({"Retry-After": "7"}, now) == 7
    assert retry_after({"Retry-After": later}, now) == 90
    an_hour_ahead = format_datetime(date + timedelta(seconds=30), usegmt=True)
    assert retry_after({"Retry-After": later, "Date": an_hour_ahead}, now) == 60
    for nonsense in ("", "soon", "-5", "1.5", "٣", "9" * 400, "Sun, 99 Mar 2026"):
        assert retry_after({"Retry-After": nonsense}, now) in (0, 999_999_999)


@only_http
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>", "is not JSON"),
        (b"", "is not JSON"),
        (b'{"data": NaN}', "is not JSON"),
        (b'{"data": "\xff"}', "is not JSON"),
        (b'{"result": 1}', 'without "data"'),
        (b"[1]", 'without "data"'),
        (b'{"data": "\\u0000"}', "cannot be stored"),
    ],
)
async def test_an_answer_that_cannot_be_understood_fails_the_job(
    tmp_path: Path, body: bytes, said: str
) -> None:
    async with scene(tmp_path) as at:
        at.service.switches.status = 200
        at.service.switches.body = body
        job = await at.run()
        assert job.state is State.FAILED
        assert job.error is not None
        assert job.error.code is Code.SERVICE_ERROR
        assert said in job.error.message


@only_http
async def test_an_answer_that_is_too_long_is_not_kept(tmp_path: Path) -> None:
    service = SimulatedService("work", limit=1)
    async with scene(tmp_path, service, endpoint=Endpoint("", max_response=1000)) as at:
        service.switches.status = 200
        service.switches.body = orjson.dumps({"data": "x" * 200_000})
        job = await at.run()
        assert job.error is not None
        assert job.error.code is Code.RESULT_TOO_LARGE
        service.switches.status = 0
        assert (await at.run()).state is State.COMPLETED, "its slot is free again"


@only_http
async def test_a_compressed_answer_is_not_unpacked(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        at.service.switches.status = 200
        at.service.switches.headers = {"Content-Encoding": "gzip"}
        at.service.switches.body = b"\x1f\x8b bomb"
        job = await at.run()
        assert job.error is not None
        assert job.error.code is Code.SERVICE_ERROR


@only_http
async def test_headers_of_an_endpoint_go_to_it_and_the_trace_is_handed_on(tmp_path: Path) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    endpoint = Endpoint("", headers={"Authorization": "Bearer for the service only"})
    async with scene(tmp_path, endpoint=endpoint) as at:
        await at.run(trace=trace)
        await at.run(trace=trace[3:35])
        await at.run(trace=f"{trace}\n")
        whole, by_id, none = (call.headers for call in at.service.calls)
        assert whole["Authorization"] == "Bearer for the service only"
        assert whole["traceparent"] == trace
        assert by_id["traceparent"].startswith(trace[:36])
        assert "traceparent" not in none
        assert "secret" not in repr(endpoint)
        assert "Bearer" not in repr(endpoint)


@only_http
async def test_a_redirect_never_carries_a_secret_away(tmp_path: Path) -> None:
    async with SimulatedService("elsewhere").serving() as elsewhere:
        endpoint = Endpoint("", headers={"Authorization": "Bearer for the service only"})
        async with scene(tmp_path, endpoint=endpoint) as at:
            at.service.switches.status = 307
            at.service.switches.headers = {"Location": f"{elsewhere.url}/v1/execute"}
            assert (await at.run()).state is State.FAILED
        assert not elsewhere.calls


async def test_a_step_runs_in_the_region_it_was_claimed_for(tmp_path: Path) -> None:
    regions = {name: Region(name, limit=2) for name in ("US", "EU")}
    settings = catalog(called("work", regions=regions))
    async with SimulatedService("EU").serving() as eu:
        endpoint = Endpoint("", regions={"EU": eu.url})
        async with scene(
            tmp_path, SimulatedService("work"), settings=settings, endpoint=endpoint
        ) as at:
            assert (await at.run(regions=("EU",))).region == "EU"
            assert (await at.run(regions=("US",))).region == "US"
            assert (len(eu.calls), len(at.service.calls)) == (1, 1)


@pytest.mark.parametrize(
    "url", ["image-gen:9000", "ftp://image-gen", "http://", "http://me:pw@x", "http://x/?key=1"]
)
def test_an_address_that_cannot_be_called_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(SetupError, match='service "work"'):
        checked("work", Endpoint(url))


def test_every_region_needs_an_address_and_the_service_itself_only_where_one_has_none() -> None:
    own = Endpoint("", {"US": "http://us", "EU": "http://eu"})
    assert checked("work", own, ["US", "EU"]) is own
    with pytest.raises(SetupError, match='service "work"'):
        checked("work", own, ["US", "EU", "ASIA"])


@only_http
async def test_no_connection_is_a_service_that_is_away(tmp_path: Path) -> None:
    """The slot is free at once: nothing can be running where nobody answered."""
    async with SimulatedService("work").serving() as gone:
        nowhere = gone.url
    settings = catalog(called("work", limit=1, max_attempts=3))
    async with scene(tmp_path, SimulatedService("work"), settings=settings) as at:
        at.call_at(nowhere)
        job = await at.world.submit()
        await at.until_queued(job)
        (attempt,) = await at.world.engine.attempts(job)
        assert attempt.fault is Fault.UNAVAILABLE
        assert attempt.message is not None
        assert nowhere.rpartition(":")[2] not in attempt.message, (
            "where it is, is no user's business"
        )
        assert not await core_of(at.world.engine).ledger.slots()


@pytest.mark.timeout(20)
async def test_a_lost_connection_keeps_the_slot_until_the_call_must_be_over(tmp_path: Path) -> None:
    settings = catalog(called("work", limit=1, max_attempts=3, timeout=60))
    async with scene(tmp_path, SimulatedService("work", limit=1), settings=settings) as at:
        at.service.switches.drops = 1
        job = await at.world.submit()
        await at.until_queued(job)
        (attempt,) = await at.world.engine.attempts(job)
        assert attempt.fault is Fault.UNAVAILABLE
        kept = await core_of(at.world.engine).ledger.slots()
        assert len(kept) == 1
        await at.world.pass_time(10)
        assert await core_of(at.world.engine).ledger.slots() == kept
        assert len(at.service.calls) == 1
        await at.world.pass_time(51)
        assert (await at.ended(job)).state is State.COMPLETED


@only_http
async def test_a_gateway_that_stopped_waiting_leaves_the_slot_taken(tmp_path: Path) -> None:
    """504: what stands behind it may still be at work."""
    settings = catalog(called("work", limit=1, max_attempts=3, timeout=60))
    async with scene(tmp_path, SimulatedService("work", limit=1), settings=settings) as at:
        at.service.switches.status = 504
        await at.until_queued(await at.world.submit())
        assert len(await core_of(at.world.engine).ledger.slots()) == 1


async def test_a_step_that_takes_too_long_is_cut_and_gets_more_time(tmp_path: Path) -> None:
    held = Held()
    settings = catalog(called("work", timeout=30, max_attempts=3))
    service = SimulatedService("work", work=held)
    async with scene(tmp_path, service, settings=settings) as at:
        job = await at.world.submit()
        await service.until(lambda it: it.running == 1)
        at.world.clock.advance(31_000_000)
        again = await at.until_queued(job)
        assert again.timeout == 45_000_000
        (attempt,) = await at.world.engine.attempts(job)
        assert (attempt.fault, attempt.outcome) == (Fault.TIMEOUT, "timeout")
        held.let_go()


@only_http
async def test_a_streamed_answer_is_read_to_its_end(tmp_path: Path) -> None:
    async def work(_: SimulatedExecution) -> web.Response:
        return web.Response(body=_parts())

    async def _parts() -> AsyncIterator[bytes]:
        yield b'{"data": '
        yield b'"in parts"}'

    async with scene(tmp_path, SimulatedService("work", work=work)) as at:
        job = await at.run()
        assert (await at.world.engine.view(job.id)).context["step_0_work"]["data"] == "in parts"
