"""The result of a job: the output of its last finished step that is no quality check."""

from __future__ import annotations

from collections.abc import Mapping

from fairlane.model.job import Job, Json
from fairlane.model.step import context_name


def result_of(job: Job, context: Mapping[str, Json]) -> Json:
    """None if no such step has finished. `context` holds the outputs of the finished steps."""
    for number in range(len(job.plan) - 1, -1, -1):
        step = job.plan[number]
        found = context.get(context_name(number, step.service))
        if found is not None and step.quality_check is None:
            return found["data"]
    return None
