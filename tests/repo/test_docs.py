"""The pages say what the code does: every setting, move, fault, event and error, and no other."""

import dataclasses
import re
from enum import Enum
from pathlib import Path

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
from fairlane.model.endpoint import Endpoint
from fairlane.model.event import MESSAGES, EventType
from fairlane.model.service import Shares
from fairlane.model.state import MOVES, RESUMABLE, Code, State
from fairlane.policy.quotas import Quota, Usage, admit, admit_duration
from fairlane.policy.retry import Bury, Fail, Retry, Tried, Verdict, judge
from tests.repo.checkout import ROOT, kept_files
from tests.repo.readme import python_blocks, run
from tests.repo.tables import CODE, DOCS, Row, anchors, table

SETTINGS = DOCS / "reference" / "settings.md"
MOVES_PAGE = DOCS / "reference" / "moves.md"
ERRORS = DOCS / "reference" / "errors.md"
DECISIONS = DOCS / "decisions"
GUIDES = sorted((DOCS / "guides").glob("*.md"))

PRINTED = re.compile(r"# → (.*)$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ELSEWHERE = re.compile(r"^[a-z]+:")
KINDS = [
    Tier,
    Service,
    Region,
    Provider,
    Limits,
    CreditSettings,
    Shares,
    Endpoint,
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


# --- guides --------------------------------------------------------------------------------------
@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_every_guide_runs_and_prints_what_it_says(guide: Path, tmp_path: Path) -> None:
    """The blocks of a guide are one program; its line numbers are those of the page."""
    (tmp_path / "guide.py").write_text(program(guide), "utf-8")
    done = run(["guide.py"], tmp_path)
    where = guide.relative_to(ROOT).as_posix()
    assert done.returncode == 0, f"{where}:\n{done.stdout}{done.stderr}"
    assert done.stdout.splitlines() == PRINTED.findall(program(guide)), where


def test_there_are_guides() -> None:
    assert GUIDES


def program(guide: Path) -> str:
    text = ""
    for block in python_blocks(guide):
        text += "\n" * (block.line - text.count("\n")) + block.text
    return text


# --- links ---------------------------------------------------------------------------------------
def test_every_relative_link_leads_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT).as_posix()}: {target}"
        for page in kept_files()
        if page.suffix == ".md"
        for target in LINK.findall(CODE.sub("", page.read_text("utf-8")))
        if not ELSEWHERE.match(target) and not leads_somewhere(page, target)
    ]
    assert not broken, "\n".join(broken)


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    found = page.parent / path if path else page
    if not found.exists():
        return False
    return not anchor or anchor in anchors(found)


def test_every_decision_is_listed() -> None:
    listed = set(LINK.findall((DECISIONS / "README.md").read_text("utf-8")))
    assert {page.name for page in DECISIONS.glob("[0-9]*.md")} <= listed
