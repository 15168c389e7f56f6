"""The pages say what the code does: every setting, move, fault, event and error, and no other."""

import dataclasses
from enum import Enum

import pytest

from fairlane import (
    CreditSettings,
    Limits,
    NewJob,
    Provider,
    Region,
    Service,
    Tier,
    WorkerSpec,
    errors,
)
from fairlane.engine.task_types import TaskTypes
from fairlane.engine.users_per_key import too_many_users
from fairlane.errors import FairlaneError, Refused
from fairlane.model.attempt import Fault
from fairlane.model.celery_bridge import CeleryBridge
from fairlane.model.endpoint import Endpoint
from fairlane.model.event import MESSAGES, EventType
from fairlane.model.service import Shares
from fairlane.model.state import MOVES, RESUMABLE, Code, State
from fairlane.policy.quotas import Quota, Usage, admit, admit_duration
from fairlane.policy.retry import Bury, Fail, Retry, Tried, Verdict, judge
from tests.repo.tables import DOCS, Row, table

SETTINGS = DOCS / "reference" / "settings.md"
MOVES_PAGE = DOCS / "reference" / "moves.md"
ERRORS = DOCS / "reference" / "errors.md"
KINDS = [
    Tier,
    Service,
    Region,
    Provider,
    Limits,
    CreditSettings,
    Shares,
    Endpoint,
    CeleryBridge,
    WorkerSpec,
    NewJob,
]


# --- settings ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "kind",
    KINDS,
    ids=lambda kind: kind.__name__,
)
def test_every_setting_is_documented_with_its_default(kind: type) -> None:
    documented = {row["field"]: row["default"] for row in table(SETTINGS, kind.__name__)}
    assert documented == defaults(kind)


def test_every_setting_has_a_meaning() -> None:
    for kind in KINDS:
        for row in table(SETTINGS, kind.__name__):
            assert row["meaning"], f"{kind.__name__}.{row['field']}"


def defaults(kind: type) -> dict[str, str]:
    """Every field with its default, as the pages write it."""
    if not dataclasses.is_dataclass(kind):
        given = getattr(kind, "_field_defaults", {})
        names = getattr(kind, "_fields", ())
        return {name: shown(given[name]) if name in given else "required" for name in names}
    return {field.name: shown_default(field) for field in dataclasses.fields(kind)}


def shown_default(field: dataclasses.Field[object]) -> str:
    if field.default is not dataclasses.MISSING:
        return shown(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return shown(field.default_factory())
    return "required"


def shown(value: object) -> str:
    return repr(value.value if isinstance(value, Enum) else value)


# --- moves, failures, events ---------------------------------------------------------------------
def test_the_table_of_moves_is_the_one_in_the_code() -> None:
    documented = [(row["move"], row["from"], row["to"]) for row in table(MOVES_PAGE, "Moves")]
    real = [
        (str(move), str(before), str(after))
        for move, states in MOVES.items()
        for before, after in states.items()
    ]
    assert sorted(documented) == sorted(real)


def test_every_failure_code_is_documented() -> None:
    documented = {
        (row["code"], row["state"], row["resumable"]) for row in table(MOVES_PAGE, "Failure codes")
    }
    assert documented == {(str(code), ends_as(code), resumable(code)) for code in Code}


def ends_as(code: Code) -> str:
    return str(State.DEAD if code is Code.MAX_ATTEMPTS else State.FAILED)


def resumable(code: Code) -> str:
    return "yes" if code in RESUMABLE else "no"


def test_every_fault_is_documented() -> None:
    assert [row["fault"] for row in table(MOVES_PAGE, "Faults")] == [str(fault) for fault in Fault]


@pytest.mark.parametrize("row", table(MOVES_PAGE, "Faults"), ids=lambda row: row["fault"])
def test_every_fault_has_the_verdict_that_is_documented(row: Row) -> None:
    first = Tried(Fault(row["fault"]), attempt=1, max_attempts=2, timeout=100, first_timeout=100)
    last = first._replace(attempt=2)
    assert row["attempts left"] == told(judge(first, jitter=0), first)
    assert row["no attempt left"] == told(judge(last, jitter=0), last)
    if row["service closed"] != "–":
        closed = last._replace(free=True)
        assert row["service closed"] == told(judge(closed, jitter=0), closed)


def told(verdict: Verdict, tried: Tried) -> str:
    match verdict:
        case Fail(code):
            return f"fail {code}"
        case Bury():
            return "bury"
        case Retry(_, attempt, timeout):
            more_time = ", with more time" if timeout > tried.timeout else ""
            return f"retry{more_time}" + (", costs nothing" if attempt < tried.attempt else "")


def test_every_event_is_documented_with_its_message() -> None:
    documented = {row["event"]: row["message"] for row in table(MOVES_PAGE, "Events")}
    assert documented == {str(kind): MESSAGES[kind] for kind in EventType}


# --- errors --------------------------------------------------------------------------------------
def test_every_error_is_documented_with_its_code() -> None:
    documented = {row["error"]: row["code"] for row in table(ERRORS, "Errors")}
    assert documented.pop(Refused.__name__) == "see below"
    assert documented == {
        each.__name__: each.code
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, FairlaneError) and each is not Refused
    }


def test_every_limit_that_refuses_is_documented() -> None:
    everything = Usage(pending=1, last_hour=1, waiting=1)
    refusals = [
        admit_duration(Tier("free", max_duration=1), duration=2),
        too_many_users(limit=1, frees_at=0),
        TaskTypes().refusal(),
        admit(Quota(per_hour=1), everything),
        admit(Quota(pending=1), everything),
        admit(Quota(waiting=1), everything),
    ]
    rows = table(ERRORS, "Which limit refused")
    assert [row["code"] for row in rows] == [refusal.code for refusal in refusals if refusal]
    for row, refusal in zip(rows, refusals, strict=True):
        assert refusal is not None
        assert (refusal.setting or "") in row["setting"]


def test_every_error_tells_the_next_move() -> None:
    assert all(row["your next move"] for row in table(ERRORS, "Errors"))
