"""Dead workers, poison jobs, dead letters, webhooks, keys and live updates: each fault is found."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import pytest

from fairlane.api.celery_loads import CeleryLoadSource
from fairlane.celery.leases import LeaseStore, connect_to, new_nonce
from fairlane.celery.options import Options
from fairlane.config.settings import CeleryLoads, ServerSettings
from fairlane.model.attempt import Fault
from fairlane.model.job import NewJob
from fairlane.model.key import Key, Role
from fairlane.model.webhook import Delivery
from fairlane.model.worker import WorkerState
from fairlane.servers import RedisKeyspace
from fairlane.units import SECOND
from tests.doctor.patient import WORKER, Patient

DAY = 86_400


async def test_a_silent_worker_is_a_warning_and_the_last_one_is_wrong(patient: Patient) -> None:
    other = replace(WORKER, id="other")
    await patient.alive(WORKER, other)
    patient.pass_seconds(20)
    await patient.alive(other)
    finding = await patient.one("workers-dead", "warning")
    assert "1 worker silent (w), last heard 20 s ago; 1 alive" in finding.text
    patient.pass_seconds(20)
    await patient.world.submit("work")
    finding = await patient.one("workers-dead", "wrong", patient.new_doctor())
    assert "2 workers silent" in finding.text
    assert "0 alive, 1 job waits" in finding.text


async def test_a_worker_that_signed_off_is_not_silent(patient: Patient) -> None:
    await patient.alive(replace(WORKER, state=WorkerState.DEAD))
    patient.pass_seconds(60)
    assert not await patient.found("workers-dead")


async def test_two_versions_of_workers_for_the_same_services_are_a_warning(
    patient: Patient,
) -> None:
    await patient.alive(replace(WORKER, version="1.2"), replace(WORKER, id="b", version="1.2"))
    assert not await patient.found("worker-versions")
    await patient.alive(replace(WORKER, id="c", version="1.3"))
    finding = await patient.one("worker-versions", "warning", patient.new_doctor())
    assert "2 × 1.2, 1 × 1.3" in finding.text


async def test_a_job_that_was_started_again_and_again_is_a_warning(patient: Patient) -> None:
    await patient.alive()
    job = await patient.world.submit("work")
    for _ in range(4):
        await patient.engine.give_back(await patient.world.claim_one(WORKER))
    assert not await patient.found("poison-job")
    await patient.world.claim_one(WORKER)
    finding = await patient.one("poison-job", "warning", patient.new_doctor())
    assert finding.command == f"fairlane jobs show {job}"
    assert finding.figure == "5"


async def test_many_new_dead_letters_and_failures_are_warnings(patient: Patient) -> None:
    await patient.alive()
    await patient.world.submit_all([NewJob("fragile") for _ in range(20)])
    for lease in await patient.world.claim(9, WORKER):
        await patient.engine.fail(lease, Fault.TRANSIENT, "broken")
    assert not await patient.found("dead-letters")
    assert not await patient.found("failures")
    for lease in await patient.world.claim(11, WORKER):
        await patient.engine.fail(lease, Fault.TRANSIENT, "broken")
    doctor = patient.new_doctor()
    assert (await patient.one("dead-letters", "warning", doctor)).figure == "20"
    assert (await patient.one("failures", "warning", doctor)).figure == "100 %"
    patient.pass_seconds(61)
    assert not await patient.found("dead-letters", patient.new_doctor())


async def test_webhooks_that_fail_are_told_without_their_address(patient: Patient) -> None:
    await patient.alive()
    secret = "token-in-the-path"
    callback = f"https://hooks.example.com/{secret}"
    for _ in range(10):
        await patient.world.submit("work", callback=callback)
    for lease in await patient.world.claim(10, WORKER):
        await patient.engine.complete(lease)
    webhooks, now = patient.engine.webhooks, patient.core.now()
    due = await webhooks.due(now, now + SECOND, 10)
    assert not await patient.found("webhooks-failing")
    await webhooks.again(due[0].id, 3, now + SECOND)
    finding = await patient.one("webhooks-failing", "warning", patient.new_doctor())
    assert "1 webhook to hooks.example.com failed" in finding.text
    assert secret not in repr(finding)
    for each in due[1:]:
        await webhooks.over(each.id, Delivery.FAILED, now)
    finding = await patient.one("webhooks-failing", "wrong", patient.new_doctor())
    assert "10 webhooks" in finding.text


@pytest.mark.embedded
async def test_celery_tasks_that_no_worker_takes_are_a_warning(
    patient: Patient, redis_server: RedisKeyspace
) -> None:
    prefix = "doctor-test:celery:"
    options = Options(queues=("q1",), key_prefix=prefix)
    store = LeaseStore(options, lambda: connect_to(redis_server.url))
    source = CeleryLoadSource(CeleryLoads(redis_server.url, prefix))
    doctor = patient.new_doctor(celery=source.counts)
    try:
        assert not await patient.found("celery-idle", doctor)
        store.reserve("app.task", [new_nonce() for _ in range(10)])
        patient.pass_seconds(2)
        finding = await patient.one("celery-idle", "warning", doctor)
        assert "10 tasks wait in the Celery queue q1 and none runs" in finding.text
    finally:
        source.close()
        store.close()


# --- keys ----------------------------------------------------------------------------------------
def key(name: str, role: Role, **more: int | None) -> Key:
    return Key(name, "acme", role, "hash", name, **more)  # type: ignore[arg-type]


async def test_no_key_beyond_loopback_is_wrong(patient: Patient) -> None:
    assert not await patient.found("keys-missing")
    public = patient.new_doctor(ServerSettings(host="0.0.0.0"))  # noqa: S104 - never listened on
    finding = await patient.one("keys-missing", "wrong", public)
    assert finding.command == "fairlane keys create --role admin"


async def test_no_valid_admin_key_is_wrong(patient: Patient) -> None:
    now, keys = patient.core.now(), patient.engine.api_keys
    await keys.add(key("client", Role.CLIENT), "test")
    await keys.add(key("admin", Role.ADMIN, expires_at=now + 30 * DAY * SECOND), "test")
    assert not await patient.found("keys-missing")
    await keys.revoke("admin", now, "test")
    finding = await patient.one("keys-missing", "wrong", patient.new_doctor())
    assert "none of 1 valid key is an admin key" in finding.text


async def test_a_key_that_expires_within_a_week_is_a_warning(patient: Patient) -> None:
    now, keys = patient.core.now(), patient.engine.api_keys
    await keys.add(key("admin", Role.ADMIN, expires_at=now + 8 * DAY * SECOND), "test")
    assert not await patient.found("keys-expiring")
    await keys.add(key("soon", Role.READ, expires_at=now + 2 * DAY * SECOND), "test")
    finding = await patient.one("keys-expiring", "warning", patient.new_doctor())
    assert finding.text == "1 key will expire within a week, the first, soon, in 2 d"
    patient.pass_seconds(3 * DAY)
    assert (
        "admin, in 5 d"
        in (await patient.one("keys-expiring", "warning", patient.new_doctor())).text
    )


# --- live updates --------------------------------------------------------------------------------
async def test_too_many_listeners_are_a_warning(patient: Patient) -> None:
    with ExitStack() as stack:
        for n in range(2_501):
            stack.enter_context(patient.core.subscriptions.listening(f"job-{n}"))
        finding = await patient.one("listeners-slow", "warning")
    assert finding.figure == "2501"


async def test_a_gap_in_the_events_of_a_job_is_wrong(patient: Patient) -> None:
    await patient.alive()
    await patient.world.submit("work")
    await patient.engine.complete(await patient.world.claim_one(WORKER))
    assert not await patient.found("event-gap")
    await patient.sql("UPDATE jobs SET written = written + 1")
    assert (await patient.one("event-gap", "wrong", patient.new_doctor())).figure == "1"


async def test_a_change_that_the_index_is_not_told_for_a_minute_is_wrong(patient: Patient) -> None:
    job = await patient.world.submit("work")
    value = "ARRAY[?]" if patient.clustered else "json_array(?)"
    await patient.sql(f"INSERT INTO outbox (jobs) VALUES ({value})", job)  # noqa: S608 - constants
    assert not await patient.found("outbox-late")
    patient.pass_seconds(61)
    finding = await patient.one("outbox-late", "wrong")
    assert finding.figure == "61 s"


# --- estimates and targets -----------------------------------------------------------------------
async def test_estimates_that_do_not_hold_are_a_warning(patient: Patient) -> None:
    await patient.alive()
    jobs = [await patient.world.submit("work", user=f"u{n}") for n in range(50)]
    for job in jobs:
        assert (await patient.engine.view(job)).eta is not None
    patient.pass_seconds(3_600)
    await patient.alive()
    assert len(await patient.world.claim(50, WORKER)) == 50
    finding = await patient.one("eta-off", "warning")
    assert finding.figure == "0 %"


async def test_a_tier_that_misses_its_target_is_a_warning(patient: Patient) -> None:
    await patient.alive()
    await patient.world.submit_all([NewJob("work", tier="high") for _ in range(20)])
    await patient.world.claim(20, WORKER)
    assert not await patient.found("target-missed")
    await patient.world.submit_all([NewJob("work", tier="high") for _ in range(20)])
    patient.pass_seconds(6)
    await patient.world.claim(20, WORKER)
    finding = await patient.one("target-missed", "warning", patient.new_doctor())
    assert finding.text == "50 % of 40 high jobs started within 5.0 s"
    simulation = patient.new_doctor(ServerSettings(simulated_speed=100))
    finding = await patient.one("target-missed", "warning", simulation)
    assert finding.text == "50 % of 40 high jobs started within 8 min"
