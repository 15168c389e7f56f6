"""The wait bound of promotion: first come, first served plus patience plus one job in service."""

from __future__ import annotations

from dataclasses import replace

from fairlane.simulate.ablation import bounded
from fairlane.simulate.scenario import Scenario


def violations(question: Scenario) -> int:
    """How many jobs of a one-step workload without model loads waited longer than the bound."""
    arrivals = tuple(each._replace(model="", load=None) for each in question.workload.arrivals)
    plain = replace(
        question,
        catalog=bounded(question.catalog),
        workload=replace(question.workload, arrivals=arrivals),
    )
    ours = {each.job: each.started for each in plain.run().served}
    fifo = {each.job: each.started for each in plain.run("fifo").served}
    patience = plain.catalog.tiers.patience
    longest = max(sum(each.seconds) for each in arrivals)
    return sum(
        started > fifo[job] + patience[arrivals[job].rank] + longest
        for job, started in ours.items()
    )
