"""Jobs that stay queued, limits, and tiers that are not served: each fault is made and found."""

from __future__ import annotations

from fairlane.index.index import Freed
from fairlane.model.attempt import Fault
from fairlane.model.job import NewJob
from fairlane.model.worker import Worker
from tests.doctor.patient import WORKER, Patient


async def test_a_healthy_queue_has_nothing_wrong(patient: Patient) -> None:
    await patient.alive()
    for name in ("work", "scarce", "spread"):
        await patient.world.submit(name, user="ada")
    await patient.world.claim(1, WORKER)
    await patient.engine.sweep()
    examination = await patient.doctor.examine()
    bad = [each for each in examination.findings if each.verdict != "ok"]
    if patient.clustered:  # the server of these tests is fast and forgets
        bad = [each for each in bad if each.check != "postgres-durability"]
    assert not bad
    assert len(examination.findings) > 20


async def test_jobs_without_a_worker_are_wrong(patient: Patient) -> None:
    await patient.alive()
    await patient.world.submit_all([NewJob("work", capabilities=("gpu",)) for _ in range(3)])
    finding = await patient.one("no-worker", "wrong")
    assert finding.figure == "3"
    assert "no live worker runs work with gpu" in finding.text
    await patient.alive(Worker("g", capabilities=frozenset({"gpu"})))
    assert not await patient.found("no-worker", patient.new_doctor())


async def test_a_worker_that_drains_does_not_count(patient: Patient) -> None:
    await patient.alive()
    await patient.engine.drain(WORKER)
    await patient.world.submit("work")
    await patient.one("no-worker", "wrong")


async def test_a_paused_service_with_waiting_jobs_is_a_warning(patient: Patient) -> None:
    await patient.engine.change("services", "scarce", "paused", value=True)
    assert not await patient.found("paused")
    await patient.world.submit("scarce")
    finding = await patient.one("paused", "warning", patient.new_doctor())
    assert finding.command == "fairlane services unpause scarce"


async def test_an_open_circuit_breaker_is_wrong_while_jobs_wait(patient: Patient) -> None:
    await patient.alive()
    for _ in range(5):
        await patient.world.submit("work")
    for lease in await patient.world.claim(3, WORKER):
        await patient.engine.fail(lease, Fault.UNAVAILABLE, "connection refused")
    finding = await patient.one("breaker-open", "wrong")
    assert finding.subject == "work"
    assert "does not answer, 2 jobs wait, next try in" in finding.text


async def test_a_slot_whose_lease_was_not_taken_back_is_stuck(patient: Patient) -> None:
    await patient.alive()
    first, _ = [await patient.world.submit("scarce") for _ in range(2)]
    await patient.world.claim_one(WORKER)
    assert not await patient.found("stuck-slot")
    patient.pass_seconds(60)
    finding = await patient.one("stuck-slot", "wrong", patient.new_doctor())
    assert f"1 job waits, 1 of 1 slot taken; one is held by job {first} since 60 s" in finding.text
    assert "worker w was last heard 60 s ago, and the lease ended 45 s ago" in finding.text
    assert finding.command == f"fairlane jobs show {first}"


async def test_the_limit_of_a_stuck_slot_is_that_of_the_settings_not_of_the_index(
    patient: Patient,
) -> None:
    """An index that is being rebuilt knows no limit."""
    await patient.alive()
    job = await patient.world.submit("scarce")
    await patient.world.claim_one(WORKER)
    patient.pass_seconds(60)
    await patient.core.index.begin("another life")
    finding = await patient.one("stuck-slot", "wrong", patient.new_doctor())
    assert "1 of 1 slot taken" in finding.text
    assert finding.command == f"fairlane jobs show {job}"


async def test_a_slot_that_is_kept_for_a_call_that_was_cut_off_is_told(patient: Patient) -> None:
    await patient.alive()
    first, _ = [await patient.world.submit("scarce") for _ in range(2)]
    await patient.world.claim_one(WORKER)
    await patient.engine.cancel(first)
    finding = await patient.one("stuck-slot", "warning")
    assert f"a call of job {first} was cut off and may still run" in finding.text


async def test_a_job_that_runs_far_too_long_while_others_wait_is_told(patient: Patient) -> None:
    await patient.alive()
    for _ in range(12):
        await patient.world.submit("scarce")
    for _ in range(10):
        lease = await patient.world.claim_one(WORKER)
        patient.pass_seconds(2)
        await patient.engine.complete(lease)
    lease = await patient.world.claim_one(WORKER)
    for _ in range(20):
        patient.pass_seconds(10)
        await patient.engine.heartbeat(WORKER, [lease])
    finding = await patient.one("stuck-slot", "warning")
    assert f"held by job {lease.job} since 3 min" in finding.text
    assert "worker w was last heard 0.0 s ago" in finding.text


async def test_a_job_that_nothing_keeps_and_that_does_not_start_is_wrong(patient: Patient) -> None:
    await patient.alive()
    job = await patient.world.submit("scarce")
    patient.pass_seconds(100)
    await patient.alive()
    assert not await patient.found("not-starting")
    patient.pass_seconds(21)
    await patient.alive()
    finding = await patient.one("not-starting", "wrong", patient.new_doctor())
    assert finding.command == f"fairlane doctor {job}"
    assert "2 min" in finding.text


async def test_a_job_behind_a_busy_slot_is_not_reported_as_not_starting(patient: Patient) -> None:
    await patient.alive()
    for _ in range(2):
        await patient.world.submit("scarce")
    await patient.world.claim_one(WORKER)
    patient.pass_seconds(200)
    await patient.alive()
    assert not await patient.found("not-starting")


async def test_a_worker_without_room_starts_nothing_and_is_not_reported(patient: Patient) -> None:
    small = Worker("s", frozenset({"work"}), capacity=1)
    await patient.alive(small)
    for _ in range(2):
        await patient.world.submit("work")
    await patient.world.claim_one(small)
    patient.pass_seconds(200)
    await patient.alive(small)
    assert not await patient.found("not-starting")


async def test_a_queue_that_is_nearly_full_is_a_warning(patient: Patient) -> None:
    await patient.alive()
    await patient.world.submit_all([NewJob("full", tier="high") for _ in range(4)])
    assert not await patient.found("queue-full")
    await patient.world.submit("full", tier="high")
    finding = await patient.one("queue-full", "warning", patient.new_doctor())
    assert finding.text == "5 of at most 10 jobs wait, so low jobs are refused"
    await patient.world.submit_all([NewJob("full", tier="high") for _ in range(5)])
    finding = await patient.one("queue-full", "warning", patient.new_doctor())
    assert "every job is refused" in finding.text


# --- limits --------------------------------------------------------------------------------------
async def test_a_slot_above_the_limit_is_wrong(patient: Patient) -> None:
    """I7: the doctor sees what the trigger of the database prevents."""
    await patient.alive()
    await patient.world.submit("scarce")
    await patient.world.claim_one(WORKER)
    await patient.sql("UPDATE pools SET size = 0, drain = 0 WHERE name = 'svc:scarce'")
    finding = await patient.one("over-limit", "wrong")
    assert finding.figure == "1"


async def test_a_lowered_limit_is_no_slot_above_the_limit(patient: Patient) -> None:
    await patient.engine.change("services", "scarce", "limit", 2)
    await patient.alive()
    for _ in range(2):
        await patient.world.submit("scarce")
    assert len(await patient.world.claim(2, WORKER)) == 2
    await patient.engine.change("services", "scarce", "limit", 1)
    assert not await patient.found("over-limit")


async def test_a_slot_that_no_job_holds_is_wrong(patient: Patient) -> None:
    """I10: a leaked slot is found."""
    await patient.alive()
    await patient.world.submit("scarce")
    await patient.world.claim_one(WORKER)
    await patient.sql("UPDATE slots SET token = 'nobody'")
    await patient.one("orphan-slot", "wrong")


async def test_an_index_that_counts_other_slots_is_wrong(patient: Patient) -> None:
    await patient.alive()
    await patient.world.submit("scarce")
    lease = await patient.world.claim_one(WORKER)
    assert not await patient.found("slot-count")
    await patient.core.index.free([Freed(lease.token)], patient.core.now())
    finding = await patient.one("slot-count", "wrong", patient.new_doctor())
    assert finding.subject == "scarce"
    assert "the index counts 0 slots, the ledger 1" in finding.text


# --- tiers ---------------------------------------------------------------------------------------
async def test_a_tier_that_waits_far_beyond_its_patience_is_wrong(patient: Patient) -> None:
    await patient.alive()
    await patient.world.submit("work", tier="low", user="ada")
    patient.pass_seconds(2 * 1_800 - 10)
    assert not await patient.found("tier-starving")
    patient.pass_seconds(20)
    slow = await patient.one("tier-starving", "warning", patient.new_doctor())
    assert "1 low job at work" in slow.text
    patient.pass_seconds(2 * 1_800)
    await patient.one("tier-starving", "wrong", patient.new_doctor())


async def test_promotions_that_are_not_announced_are_a_warning(patient: Patient) -> None:
    jobs = [NewJob("work", tier="low", user=f"u{n}") for n in range(100)]
    await patient.world.submit_all(jobs)
    patient.pass_seconds(601)
    await patient.one("promotions-late", "warning")
    await patient.world.pass_time(0, sweeps=5)
    assert not await patient.found("promotions-late", patient.new_doctor())


async def test_maintenance_that_does_not_run_is_wrong(patient: Patient) -> None:
    await patient.engine.sweep()
    patient.pass_seconds(59)
    assert not await patient.found("maintenance-late")
    patient.pass_seconds(2)
    found = await patient.found("maintenance-late", patient.new_doctor())
    assert {each.verdict for each in found} == {"wrong"}
    assert any("`judge`" in each.text for each in found)
    await patient.engine.sweep()
    assert not await patient.found("maintenance-late", patient.new_doctor())
