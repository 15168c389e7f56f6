"""A quality check (output validation): a step that judges the output of the step before it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

MAX_REASON_CHARACTERS = 500


class OnFail(StrEnum):
    """What a failed check does: the checked step runs again and has used an attempt, the job fails,
    or the job goes on and the verdict stays readable."""

    RETRY = "retry"
    FAIL = "fail"
    MARK = "mark"


class QualityCheck(NamedTuple):
    """The setting of a checked service: the service that checks its output."""

    service: str
    on_fail: OnFail = OnFail.RETRY


class QualityVerdict(NamedTuple):
    """`passed` None: the check itself failed, so there is no verdict."""

    passed: bool | None
    reason: str = ""


def check_service_name(service: str) -> str:
    """The service that checks this one if the settings name no other."""
    return f"{service}.quality"


def verdict_of(output: Any) -> QualityVerdict | None:
    """The verdict in a check's output: `true`, `false`, or an object with `passed` and perhaps
    `reason`. None if the output is something else."""
    if isinstance(output, bool):
        return QualityVerdict(output)
    if not isinstance(output, dict) or not isinstance(output.get("passed", ""), bool | None):
        return None
    reason = output.get("reason")
    text = reason[:MAX_REASON_CHARACTERS] if isinstance(reason, str) else ""
    return QualityVerdict(output["passed"], text)
