"""What-if for a running system: the arrivals of the last hour, simulated with the limit of one
service as it is and as it would be. Runs as a process of its own: the question comes as JSON on the
standard input, and the answer goes to the standard output."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import orjson

from fairlane.model.catalog import Catalog
from fairlane.model.catalog_text import catalog_of
from fairlane.simulate.report import Report
from fairlane.simulate.scenario import Scenario
from fairlane.simulate.workload import Arrival, Workload, workload

Json = Any


def answer(question: Json) -> Json:
    """The waits of each tier with the present limit and with the other one, for the same jobs."""
    catalog, service = catalog_of(question["catalog"]), question["service"]
    given = _workload(question["arrivals"], service, catalog)
    return {
        "today": _waits(catalog, given),
        "then": _waits(_with_limit(catalog, service, question["limit"]), given),
    }


def _workload(rows: Json, service: str, catalog: Catalog) -> Workload:
    found = [
        Arrival(at, user, catalog.tiers.rank(tier), service, model, (max(1, duration),), load)
        for at, user, tier, model, duration, load in rows
    ]
    return workload("the last hour", found)


def _with_limit(catalog: Catalog, service: str, limit: int) -> Catalog:
    """A limit on the service replaces those of its regions."""
    changed = replace(catalog.service(service), limit=limit, regions={})
    others = [each for each in catalog.services.values() if each.name != service]
    return Catalog(
        catalog.tiers,
        [*others, changed],
        catalog.providers.values(),
        catalog.pipelines,
        catalog.limits,
        catalog.task_defaults,
        catalog.credits,
    )


def _waits(catalog: Catalog, given: Workload) -> Json:
    targets = tuple(tier.target for tier in catalog.tiers.all)
    patient = all(each == 0 for each in targets)
    scenario = Scenario("what if", catalog, given, targets=() if patient else targets)
    return _tiers(scenario.answer(), dict(zip(catalog.tiers.names, targets, strict=True)))


def _tiers(report: Report, targets: dict[str, float]) -> Json:
    return {
        each.tier: {
            "p50": round(each.p50, 3),
            "p95": round(each.p95, 3),
            "share_in_target": each.within if targets[each.tier] else None,
        }
        for each in report.tiers
    }


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(answer(orjson.loads(sys.stdin.buffer.read()))))
