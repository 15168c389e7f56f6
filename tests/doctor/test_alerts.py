"""The dashboard's alerts are the doctor's quick checks. A tenant sees only what names no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from fairlane.doctor import doctor as module
from fairlane.doctor.checks import CHECKS, EXPENSIVE, QUICK
from fairlane.model.key import Role
from fairlane.top.feed import feed
from tests.api.server import Gateway, gateway
from tests.doctor.patient import WORKER, Patient

ALERT = {"check", "verdict", "subject", "text", "command", "page"}


@pytest.fixture
async def served(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    monkeypatch.setattr(module, "ALERT_PERIOD_SECONDS", 0.0)
    async with gateway(patient.engine) as running:
        yield running


async def alerts(url: str, key: str | None, wanted: str) -> list[dict[str, Any]]:
    """The alerts of the first frame that has this one."""
    async with asyncio.timeout(60), aclosing(feed(url, key)) as frames:
        async for shown in frames:
            found: list[dict[str, Any]] = shown.frame["alerts"] if shown.frame else []
            if wanted in {each["check"] for each in found}:
                return found
    raise AssertionError(f"no alert {wanted}")


@pytest.mark.embedded
async def test_alerts_are_part_of_the_frames_and_tenants_see_no_jobs_of_others(
    patient: Patient, served: Gateway
) -> None:
    admin, client = await served.key(Role.ADMIN), await served.key(tenant="other")
    await patient.alive()
    await patient.engine.change("services", "work", "paused", value=True)
    await patient.world.submit("work")
    job = await patient.world.submit("scarce")
    await patient.world.submit("scarce")
    await patient.world.claim_one(WORKER)
    patient.pass_seconds(60)
    seen = await alerts(served.url, admin, "stuck-slot")
    assert all(set(each) == ALERT for each in seen)
    assert any(job in each["text"] for each in seen)
    others = await alerts(served.url, client, "paused")
    assert "stuck-slot" not in {each["check"] for each in others}
    assert job not in str(others)


@pytest.mark.embedded
async def test_a_task_type_of_one_tenant_is_no_alert_of_another(patient: Patient) -> None:
    """Only checks that name no job, user, worker or key are public."""
    named = {"stuck-slot", "not-starting", "workers-dead", "poison-job", "webhooks-failing"}
    public = {each.name for each in CHECKS if each.public}
    assert not named & public
    assert {"paused", "breaker-open", "index-ready"} <= public


def test_alerts_read_nothing_that_grows_with_the_number_of_jobs() -> None:
    assert QUICK
    assert not any(set(each.needs) & set(EXPENSIVE) for each in QUICK)


def test_every_check_reads_only_what_it_declares() -> None:
    """A check that reads another group would be unknown for ever in the dashboard."""
    for each in CHECKS:
        assert each.needs, each.name
        assert each.means, each.name
        assert each.confirm, each.name
        assert each.remedy, each.name
