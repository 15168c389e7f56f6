"""The result of a job: the output of its last finished step."""

from __future__ import annotations

from collections.abc import Mapping

from fairlane.model.job import Job, Json
from fairlane.model.step import context_name


def result_of(job: Job, context: Mapping[str, Json]) -> Json:
    """None if no step has finished."""
    for step in reversed(range(len(job.plan))):
        found = context.get(context_name(step, job.plan[step].service))
        if found is not None:
            return found["data"]
    return None
