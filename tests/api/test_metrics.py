"""What Prometheus reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairlane.engine.reconciler import reconcile
from fairlane.engine.settle import Done
from fairlane.model.job import NewJob
from fairlane.model.quality_check import OnFail, QualityCheck
from fairlane.model.service import Service
from fairlane.telemetry.metric_definitions import METRICS, Metric
from fairlane.telemetry.prometheus import MAX_SERIES, Registry
from tests.api.server import Gateway, gateway
from tests.core import core_of
from tests.world import World, catalog

pytestmark = pytest.mark.every_store

SAMPLE = re.compile(r'^(\w+)(\{(?:\w+="[^"\n]*",?)*\})? (\S+)$')


async def scraped(served: Gateway) -> tuple[str, dict[str, float]]:
    """The text, and every sample in it."""
    async with served.client() as client:
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {}
    for line in answer.text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.match(line)
            assert match, line
            samples[match[1] + (match[2] or "")] = float(match[3])
    return answer.text, samples


async def test_every_declared_metric_is_told_and_no_other(world: World, served: Gateway) -> None:
    for tier in ("low", "low", "high"):
        await world.submit("scarce", tier=tier)
    lost = await world.claim_one()
    await world.pass_time(16)
    late = await world.claim_one()
    await world.engine.complete(late)
    retried = await world.submit("work")
    await world.engine.view(retried)
    await world.engine.fail(await world.claim_one(), message="again")
    await world.pass_time(601, sweeps=6)
    await world.engine.settle([Done(lost)])
    await world.engine.set_quota("ada", pending=1)
    await world.submit("work", user="ada")
    async with served.client() as client:
        refused = await client.post("/api/v1/jobs", json={"service": "work", "user_id": "ada"})
        assert refused.status_code == 429
        assert (await client.get("/no/such/path")).status_code == 404
    text, samples = await scraped(served)
    names = {re.sub(r"_(bucket|sum|count)$", "", name.partition("{")[0]) for name in samples}
    elsewhere = {
        "fairlane_quality_checks_total",
        "fairlane_celery_queue_tasks",
        "fairlane_failovers_total",
    }
    declared = {metric.name for metric in METRICS} - elsewhere
    if (await core_of(world.engine).ledger.vitals.signs()).dead is None:
        declared = {name for name in declared if not name.startswith("fairlane_pg_")}
    assert names == declared
    assert samples['fairlane_jobs_submitted_total{tier="low"}'] == 2
    assert samples["fairlane_worker_heartbeat_failures_total"] == 1
    assert samples["fairlane_lease_expired_total"] == 1
    assert samples["fairlane_stale_writes_rejected_total"] == 1
    assert samples["fairlane_tasks_dlq_total"] == 1
    assert samples['fairlane_slots_limit{pool="svc:scarce"}'] == 1
    assert samples['fairlane_shed_total{reason="too_many_pending"}'] == 1
    assert samples['fairlane_eta_error_seconds_count{service="work",tier="medium"}'] == 1
    assert samples["fairlane_claim_seconds_count"] == 3
    assert samples["fairlane_db_pool_wait_seconds_count"] > 3
    assert samples["fairlane_ledger_imbalance"] == 0
    assert samples["fairlane_ready"] == 1
    labels = 'route="/api/v1/jobs",method="POST",status="4xx"'
    assert samples[f"fairlane_http_request_seconds_count{{{labels}}}"] == 1
    labels = 'route="unknown",method="GET",status="4xx"'
    assert samples[f"fairlane_http_request_seconds_count{{{labels}}}"] == 1
    for metric in METRICS:
        assert f"# TYPE {metric.name} {metric.kind}\n" in text


async def test_paths_and_methods_that_callers_invent_are_not_remembered(served: Gateway) -> None:
    async with served.client() as client:
        await client.get("/api/v1/jobs/one")
        await client.get("/api/v1/jobs/two")
        await client.request("PROPFIND", "/coffee")
    _, samples = await scraped(served)
    shown = {name for name in samples if name.startswith("fairlane_http_request_seconds_count")}
    assert {name.partition("{")[2] for name in shown} == {
        'route="/api/v1/jobs/{job_id}",method="GET",status="4xx"}',
        'route="unknown",method="other",status="4xx"}',
    }


async def test_what_the_index_is_not_told_of_is_late(world: World, served: Gateway) -> None:
    _, samples = await scraped(served)
    assert samples["fairlane_outbox_lag_seconds"] == 0
    await world.submit()
    await scraped(served)
    world.clock.advance(90_000_000)
    _, samples = await scraped(served)
    assert samples["fairlane_outbox_lag_seconds"] == 90
    await world.engine.sweep()


async def test_a_forged_place_is_drift_and_a_moving_job_is_not(
    world: World, served: Gateway
) -> None:
    core = core_of(world.engine)
    jobs = [await world.submit() for _ in range(3)]
    await world.claim_one()
    await reconcile(core)
    _, samples = await scraped(served)
    assert samples["fairlane_index_drift_total"] == 0
    await core.index.take([(jobs[2], 1 << 62)])
    await reconcile(core)
    _, samples = await scraped(served)
    assert samples["fairlane_index_drift_total"] == 1


async def test_histograms_add_up_and_labels_are_bounded() -> None:
    numbers = Registry(
        [Metric("h_seconds", "histogram", "h", ("who",)), Metric("c", "counter", "c", ("who",))]
    )
    for value in (0.001, 0.2, 7, 9_999):
        numbers.observe("h_seconds", value, 'a"\\\n')
    text = numbers.text({})
    assert 'h_seconds_bucket{who="a\\"\\\\\\n",le="0.5"} 2' in text
    assert 'le="+Inf"} 4' in text
    for n in range(MAX_SERIES + 50):
        numbers.add("c", str(n))
    assert 'c{who="other"} 50' in numbers.text({})


async def test_quality_checks_are_counted_by_their_verdict(tmp_path: Path) -> None:
    """A check that is tried again has not ended."""
    check = QualityCheck("judge", OnFail.MARK)
    settings = catalog(Service("draw", quality_check=check), Service("judge", max_attempts=2))
    async with World(settings, tmp_path / "ledger.db") as world, gateway(world.engine) as served:
        await world.submit_all([NewJob("draw")] * 4)
        for lease in await world.claim(4):
            await world.engine.complete(lease)
        good, bad, broken, again = await world.claim(4)
        await world.engine.complete(good, True)
        await world.engine.complete(bad, False)
        await world.engine.complete(broken, "no verdict")
        await world.engine.fail(again)
        _, samples = await scraped(served)
        assert {name: n for name, n in samples.items() if "quality" in name} == {
            f'fairlane_quality_checks_total{{service="judge",verdict="{verdict}"}}': 1
            for verdict in ("passed", "rejected", "none")
        }
