"""What the gateway is for, from end to end: paying and free users, one slot and many callers, a
crash, failures that pass and failures that do not."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from aiohttp import web

from fairlane.demo.priority_service import DemoPriorityService
from fairlane.demo.services import SimulatedExecution
from fairlane.presets import gateway
from tests.dispatch.scene import Held
from tests.gateway.site import Site


async def test_a_paying_user_goes_through_the_pipeline_and_waits_only_for_the_one_slot(
    site: Site,
) -> None:
    """The tier comes from the Priority Service; each step sees what the ones before it made. On a
    cluster it is sent to one process and followed at another."""
    held = Held()
    images = site.services["image_gen"]
    images.work = held
    async with DemoPriorityService({"john": "high", "jane": "high"}).serving() as subscriptions:
        site.variables["PRIORITY_API_URL"] = subscriptions.url
        api = await site.serve()
        john = await site.caller(api)
        jane = await john.submit("image_gen", user_id="jane")
        await images.until(lambda it: it.running == 1)
        sent = {"prompt": "Design a robot"}
        job = await john.submit("full_pipeline", user_id="john", input_data=sent)
        assert (job["priority"], job["status"]) == ("high", "queued")
        john = await site.same(john, await site.other_door(api))
        await john.until(job["job_id"], "WAITING", message="image_gen")
        assert images.running == 1, "it waits for the slot"
        waiting = await john.job(job["job_id"])
        assert (waiting["status"], waiting["current_step_index"]) == ("queued", 2)
        assert "image_gen 1/1 busy" in waiting["reason"]
        held.let_go()
        done = await john.ended(job["job_id"])
        assert (done["status"], (await john.ended(jane["job_id"]))["status"]) == (
            "completed",
            "completed",
        )
        names = list(gateway().services)
        made = [f"step_{n}_{name}" for n, name in enumerate(names)]
        assert [done["context"][step]["status"] for step in made] == ["SUCCESS"] * 4
        assert [done["context"][f"{step}__attempts"] for step in made] == [1] * 4
        for n, name in enumerate(names):
            call = next(each for each in site.services[name].calls if each.step == n)
            assert (call.params, call.attempt) == (sent, 1)
            assert [step for step in call.context if "__" not in step] == made[:n]
        told = [each async for each in john.events(job["job_id"])]
        assert [each["seq"] for each in told] == list(range(1, len(told) + 1))
        assert [each["message"] for each in told] == [
            f"{word} {name} ({n}/4)"
            for n, name in enumerate(names, start=1)
            for word in ("Waiting for", "Running", "Completed")
        ] + ["Completed"]
        assert all(each.refused == 0 for each in site.services.values())


@pytest.mark.long
async def test_a_free_user_waits_is_promoted_and_served(site: Site) -> None:
    """Half an hour is a second here. Nothing ever fails for want of a slot."""
    held = Held()
    enhancer = site.services["prompt_enhancer"]
    enhancer.work = held
    site.variables["PROMOTE_LOW_TO_MEDIUM_AFTER"] = "1"
    pros = {f"pro {n}": "high" for n in range(5)}
    async with DemoPriorityService({**pros, "alice": "low"}).serving() as subscriptions:
        site.variables["PRIORITY_API_URL"] = subscriptions.url
        api = await site.serve()
        anybody = await site.caller(api)
        for user in pros:
            await anybody.submit("prompt_enhancer", user_id=user)
        await enhancer.until(lambda it: it.running == 5)
        alice = await anybody.submit("text_only", user_id="alice")
        assert alice["priority"] == "low"
        promoted = await anybody.until(alice["job_id"], "JOB_PROMOTED")
        assert promoted["data"] == {"old": "low", "new": "medium"}
        waiting = await anybody.job(alice["job_id"])
        assert (waiting["status"], waiting["priority"], waiting["original_priority"]) == (
            "queued",
            "medium",
            "low",
        )
        assert waiting["promoted_at"] is not None
        held.let_go()
        assert (await anybody.ended(alice["job_id"]))["status"] == "completed"
        told = Counter([each["type"] async for each in anybody.events(alice["job_id"])])
        assert (told["JOB_PROMOTED"], told["JOB_FAILED"], told["JOB_RETRY"]) == (1, 0, 0)
        assert enhancer.most == 5


@pytest.mark.long
async def test_ten_workers_on_one_endpoint_never_call_it_twice_at_once(site: Site) -> None:
    """Ten processes on a cluster: two serve, eight only dispatch."""
    images = site.services["image_gen"]
    images.limit = 0  # it would take more, and counts
    api = await site.serve()
    if site.clustered:
        others = [site.serve(), *(site.dispatch() for _ in range(8))]
        await asyncio.gather(*others)
    anybody = await site.caller(api)
    jobs = [await anybody.submit("image_gen", user_id=f"u{n % 10}") for n in range(50)]
    for job in jobs:
        assert (await anybody.ended(job["job_id"]))["status"] == "completed"
    assert (images.most, len(images.calls)) == (1, 50)


@pytest.mark.long
async def test_the_slot_of_a_crashed_worker_comes_back_when_its_call_must_be_over(
    site: Site,
) -> None:
    """Its job is back in line with the lease. The service still works for the one that died, so
    nobody else may call it."""
    held = Held()
    images = site.services["image_gen"]
    images.work = held
    site.set("services.image_gen", timeout=15, backoff=[0.1])
    crashing = await site.serve()
    job = await (await site.caller(crashing)).submit("image_gen")
    await images.until(lambda it: it.running == 1)
    after = await site.another(crashing)
    if site.clustered:
        await crashing.kill()
    anybody = await site.caller(after)
    await anybody.until(job["job_id"], "JOB_RETRY")
    waiting = await anybody.job(job["job_id"])
    assert waiting["status"] == "queued"
    assert "image_gen 1/1 held" in waiting["reason"]
    assert images.running == 1
    held.let_go()
    assert (await anybody.ended(job["job_id"]))["status"] == "completed"
    assert (images.most, [call.attempt for call in images.calls]) == (1, [1, 2])


@pytest.mark.long
async def test_failures_that_pass_are_got_over_and_others_end_the_job(site: Site) -> None:
    """The retry matrix: connection lost, 503, 429, no answer in time; then 500, 422, and too many
    tries."""
    enhancer, chat = site.services["prompt_enhancer"], site.services["fast_chat_llm"]
    site.set("services.prompt_enhancer", backoff=[0.1])
    site.set("services.fast_chat_llm", backoff=[0.1], timeout=2)
    answers = {
        "glitch": [503, 200],
        "busy": [429, 200],
        "slow": [0, 200],
        "broken": [503, 500],
        "malformed": [422],
        "hopeless": [503, 503, 503],
    }

    async def work(call: SimulatedExecution) -> Any:
        status = answers[call.params][call.attempt - 1]
        if status == 0:
            await asyncio.Event().wait()
        return {"said": "hello"} if status == 200 else web.Response(status=status)

    chat.work = work
    api = await site.serve()
    anybody = await site.caller(api)
    enhancer.switches.drops = 1
    ended = {}
    for what in answers:
        # one after the other: three in a row from different jobs would close the service
        job = await anybody.submit("text_only", input_data=what)
        ended[what] = await anybody.ended(job["job_id"])
    assert {
        what: (job["status"], (job["error"] or {}).get("code")) for what, job in ended.items()
    } == {
        "glitch": ("completed", None),
        "busy": ("completed", None),
        "slow": ("completed", None),
        "broken": ("failed", "SERVICE_ERROR"),
        "malformed": ("failed", "INVALID_INPUT"),
        "hopeless": ("dead", "MAX_ATTEMPTS"),
    }
    tries = {what: ended[what]["context"]["step_1_fast_chat_llm__attempts"] for what in answers}
    assert tries == {what: len(each) for what, each in answers.items()}
    first = Counter(call.job for call in enhancer.calls)
    assert first.pop(ended["glitch"]["job_id"]) == 2, "its connection was lost"
    assert set(first.values()) == {1}, "a finished step is not called again"
    for what in ("broken", "malformed", "hopeless"):
        assert not ended[what]["error"]["resumable"]
        resumed = await anybody.http.post(f"/api/v1/jobs/{ended[what]['job_id']}/resume")
        assert resumed.status_code == 409
