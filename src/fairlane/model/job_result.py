"""The result of a completed job: the output of its last step that is no quality check."""

from __future__ import annotations

from collections.abc import Mapping

from fairlane.model.job import Job, Json
from fairlane.model.state import State
from fairlane.model.step import context_name


def result_of(job: Job, context: Mapping[str, Json]) -> Json:
    """None unless the job is completed: until then a check may still reject the output. `context`
    holds the outputs of the finished steps."""
    step = result_step(job, context)
    return None if step is None or job.state is not State.COMPLETED else step["data"]


def result_step(job: Job, context: Mapping[str, Json]) -> Json:
    """The output and the metrics of the last finished step that is no quality check, or None."""
    for number in range(len(job.plan) - 1, -1, -1):
        step = job.plan[number]
        found = context.get(context_name(number, step.service))
        if found is not None and step.quality_check is None:
            return found
    return None
