"""Everything that the page can do, the command line can do."""

from __future__ import annotations

import json

import pytest

from fairlane.api.routes import what_if
from fairlane.clock import seconds
from fairlane.model.attempt import Fault
from fairlane.model.worker import Worker
from tests.api.server import Gateway
from tests.api.test_operator_commands import Typed, told
from tests.api.test_operator_commands import typed as typed  # noqa: PLC0414 - a fixture
from tests.world import World

WORKER = Worker("w")


async def test_changes_are_listed_with_their_actors(typed: Typed) -> None:
    await told(typed, "services", "set", "scarce", "--limit", "3")
    said = await told(typed, "audit")
    assert "services/scarce/limit" in said
    assert "default/local" in said
    found = json.loads(await told(typed, "audit", "--limit", "1", "--json"))
    assert found["changes"][0]["after"] == "3"


async def test_the_limit_of_a_provider_is_changed(typed: Typed, world: World) -> None:
    assert "limit  4" in await told(typed, "providers", "set", "modal", "--limit", "4")
    assert world.engine.catalog.providers["modal"].limit == 4
    assert (await typed("providers", "set", "modal")).code == 2
    assert (
        'no provider "nobody"' in (await typed("providers", "set", "nobody", "--rate", "1")).wrong
    )


async def test_the_secret_of_webhooks_is_shown_and_rotated(typed: Typed) -> None:
    first = (await told(typed, "webhooks", "secret")).split()
    assert (await typed("webhooks", "rotate", sent="n\n")).code == 1
    rotated = (await told(typed, "webhooks", "rotate", "--yes")).split()
    assert rotated[1:] == first
    assert json.loads(await told(typed, "webhooks", "secret", "--json"))["secrets"] == rotated


async def test_failed_executions_of_a_fan_out_are_run_again(typed: Typed, world: World) -> None:
    job = await world.submit("scarce", matrix={"model": ("a", "b", "c")})
    for fault in (None, Fault.TRANSIENT, Fault.TRANSIENT):
        lease = await world.claim_one(WORKER)
        if fault is None:
            await world.engine.complete(lease)
        else:
            await world.engine.fail(lease, fault, "broken")
    listed = await told(typed, "executions", "list", job)
    assert "3 shown" in listed
    assert "1 shown" in await told(typed, "executions", "list", job, "--status", "completed")
    failed = json.loads(await told(typed, "executions", "list", job, "--status", "dead", "--json"))
    one, _ = [each["execution_id"] for each in failed["executions"]]
    assert f"{one}  queued" in await told(typed, "executions", "retry", one)
    assert ", 1 queued again" in await told(typed, "executions", "retry", "--all", job)
    none = await typed("executions", "retry", "--all", job)
    assert (none.code, "a retry of failed executions is not possible" in none.wrong) == (1, True)


async def test_a_skip_shows_its_price_and_asks_first(
    typed: Typed, world: World, served: Gateway
) -> None:
    await world.engine.register(WORKER)
    await world.submit("scarce", user="bob")
    job = await world.submit("scarce", user="ada")
    await world.engine.add_credits("ada", 100, "grant")
    offer = json.loads(await told(typed, "jobs", "skip", job, "--quote", "--json"))
    assert str(offer["price"]) in await told(typed, "jobs", "skip", job, "--quote")
    assert (await typed("jobs", "skip", job, sent="n\n")).code == 1
    assert (await world.job(job)).paid_at == 0
    said = await told(typed, "jobs", "skip", job, "--yes")
    assert f"{job} is at the front; balance {100 - offer['price']}" in said


async def test_a_bulk_action_is_previewed_confirmed_and_counted(typed: Typed, world: World) -> None:
    jobs = [await world.submit("scarce", user="ada") for _ in range(3)]
    other = await world.submit("work", user="bob")
    chosen = ("bulk", "cancel", "--status", "queued", "--name", "scarce")
    previewed = await told(typed, *chosen, "--preview")
    assert "cancel: 3 jobs (3 queued)" in previewed
    assert all(job in previewed for job in jobs)
    assert json.loads(await told(typed, *chosen, "--preview", "--json"))["count"] == 3
    refused = await typed(*chosen, sent="n\n")
    assert refused.code == 1
    assert (await world.job(jobs[0])).live
    assert "3 done, 0 left alone, 0 failed" in await told(typed, *chosen, "--yes")
    assert not any([(await world.job(job)).live for job in jobs])
    assert (await world.job(other)).live
    assert "cancel: 0 jobs (none)" in await told(typed, *chosen)


async def test_another_limit_is_simulated_beside_todays(
    typed: Typed, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(what_if, "TIME_LIMIT_SECONDS", 60.0)  # a busy machine is slow
    none = await typed("whatif", "scarce", "--limit", "2")
    assert (none.code, "no job of scarce arrived" in none.wrong) == (1, True)
    for n in range(5):
        await world.submit("scarce", user=f"u{n}", tier="high")
        world.clock.advance(seconds(5))
    said = await told(typed, "whatif", "scarce", "--limit", "2")
    assert "high" in said
    assert "5 arrivals" in said


async def test_jobs_are_filtered_by_tier_and_service(typed: Typed, world: World) -> None:
    high = await world.submit("scarce", tier="high")
    low = await world.submit("work", tier="low")
    by_tier = await told(typed, "jobs", "list", "--tier", "high")
    by_service = await told(typed, "jobs", "list", "--service", "work")
    assert (high in by_tier, low in by_tier) == (True, False)
    assert (high in by_service, low in by_service) == (False, True)


async def test_a_link_shows_one_job_and_a_timeline_its_life(typed: Typed, world: World) -> None:
    job = await world.submit("scarce", user="ada")
    await world.engine.complete(await world.claim_one(WORKER))
    said = await told(typed, "jobs", "link", job, "--expires", "120")
    assert "/p/" in said.splitlines()[0]
    assert "valid until 2023-11-14 22:15:20Z" in said
    shown = await told(typed, "jobs", "timeline", job)
    assert "running" in shown
    assert "scarce" in shown


@pytest.mark.parametrize(
    "command",
    [
        ("audit",),
        ("providers", "set", "modal", "--limit", "1"),
        ("webhooks", "secret"),
        ("bulk", "cancel", "--status", "queued"),
        ("whatif", "scarce", "--limit", "2"),
        ("doctor",),
    ],
    ids=lambda command: command[0],
)
async def test_administration_needs_an_admin_key(
    typed: Typed, served: Gateway, command: tuple[str, ...]
) -> None:
    key = await served.key()
    said = await typed(*command, FAIRLANE_KEY=key)
    assert said.code in (2, 77), said
    assert said.wrong.count("\n") == 1
