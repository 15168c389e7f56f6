"""What Prometheus reads."""

from __future__ import annotations

import re

import pytest

from fairlane.engine.settle import Done
from fairlane.telemetry.declared import METRICS
from fairlane.telemetry.metrics import MOST_SERIES, Metric, Registry
from tests.api.server import Gateway
from tests.world import World

pytestmark = pytest.mark.every_store

SAMPLE = re.compile(r'^(\w+)(\{(?:\w+="[^"\n]*",?)*\})? (\S+)$')


async def test_every_declared_metric_is_told_and_no_other(world: World, served: Gateway) -> None:
    for tier in ("low", "low", "high"):
        await world.submit("scarce", tier=tier)
    lost = await world.claim_one()
    await world.pass_time(16)
    late = await world.claim_one()
    await world.engine.complete(late)
    retried = await world.submit("work")
    await world.engine.fail(await world.claim_one(), message="again")
    await world.pass_time(601, sweeps=6)
    await world.engine.settle([Done(lost)])
    async with served.client() as client:
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {}
    for line in answer.text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.match(line)
            assert match, line
            samples[match[1] + (match[2] or "")] = float(match[3])
    assert retried
    names = {re.sub(r"_(bucket|sum|count)$", "", name.partition("{")[0]) for name in samples}
    assert names == {metric.name for metric in METRICS}
    assert samples['fairlane_jobs_submitted_total{tier="low"}'] == 2
    assert samples["fairlane_worker_heartbeat_failures_total"] == 1
    assert samples["fairlane_stale_writes_rejected_total"] == 1
    assert samples["fairlane_tasks_dlq_total"] == 1
    assert samples['fairlane_slots_limit{pool="svc:scarce"}'] == 1
    for metric in METRICS:
        assert f"# TYPE {metric.name} {metric.kind}\n" in answer.text


async def test_histograms_add_up_and_labels_are_bounded() -> None:
    numbers = Registry(
        [Metric("h_seconds", "histogram", "h", ("who",)), Metric("c", "counter", "c", ("who",))]
    )
    for value in (0.001, 0.2, 7, 9_999):
        numbers.observe("h_seconds", value, 'a"\\\n')
    text = numbers.text({})
    assert 'h_seconds_bucket{who="a\\"\\\\\\n",le="0.5"} 2' in text
    assert 'le="+Inf"} 4' in text
    for n in range(MOST_SERIES + 50):
        numbers.add("c", str(n))
    assert 'c{who="other"} 50' in numbers.text({})
