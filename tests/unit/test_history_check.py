"""The history checker finds a planted fault of every promise, and none in a clean history."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fairlane.history_check
from fairlane.history_check import CHECKS, HistoryError, HistoryReport, check, read_history
from fairlane.history_check.report import percentile

Records = list[dict[str, Any]]


def clean() -> Records:
    """Two jobs of a strict service with limit 1 and a pipeline; a skip that was refunded and one
    that was not; a killed worker, a partition and a full disk."""
    return [
        {
            "kind": "run",
            "seed": 7,
            "limits": {"gpu": 1, "chat": 2},
            "strict": ["gpu"],
            "lease_seconds": 4,
            "recovery_seconds": 5,
        },
        *submit("a", 1.0, "job-a"),
        *submit("b", 1.5, "job-b"),
        *submit("b", 1.6, "job-b", again=True),
        *submit("c", 2.0, "job-c"),
        *asked("s1", "skip", 2.5, 200, job="job-b", price=5),
        *asked("s2", "skip", 2.6, 200, job="job-c", price=5),
        *asked("x1", "cancel", 3.0, 200, job="job-c", state="cancelled"),
        # job a: its worker is killed, and the second attempt completes it
        call("a-1", 2.0, "gpu", "job-a", 0, 1, "worker-1", "lease-a1"),
        {"kind": "fault", "id": "f1", "at": 3.0, "fault": "kill", "target": "worker-1"},
        {"kind": "fault_end", "id": "f1", "at": 3.5},
        call("a-2", 8.0, "gpu", "job-a", 0, 2, "worker-2", "lease-a2"),
        {"kind": "call_end", "id": "a-2", "at": 9.0},
        result("job-a", "lease-a2", 9.0),
        result("job-a", "lease-a1", 9.5, code="stale_lease"),
        # job b: a pipeline of two steps
        call("b-1", 10.0, "gpu", "job-b", 0, 1),
        {"kind": "call_end", "id": "b-1", "at": 11.0},
        call("b-2", 11.2, "chat", "job-b", 1, 1),
        {"kind": "call_end", "id": "b-2", "at": 12.0},
        {"kind": "fault", "id": "f2", "at": 13.0, "fault": "half_open", "target": "redis"},
        {"kind": "fault_end", "id": "f2", "at": 15.0},
        *submit("d", 13.5, None, status=503),
        *submit("d", 16.0, "job-d", again=True),
        {"kind": "fault", "id": "f3", "at": 20.0, "fault": "disk_full", "target": "postgres"},
        *submit("e", 21.0, None, status=503, code="storage_unavailable"),
        {"kind": "fault_end", "id": "f3", "at": 23.0},
        *submit("e", 24.0, "job-e", again=True),
        *submit("f", 40.0, "job-f"),
        {"kind": "slot", "service": "gpu", "taken_at": 2.0, "freed_at": 7.5},
        {"kind": "slot", "service": "gpu", "taken_at": 8.0, "freed_at": 9.0},
        {"kind": "slot", "service": "gpu", "taken_at": 10.0, "freed_at": 11.0},
        {"kind": "slot", "service": "chat", "taken_at": 11.1, "freed_at": 12.0},
        {"kind": "slots", "at": 5.0, "pool": "svc:gpu", "held": 1, "limit": 1},
        {"kind": "slots", "at": 50.0, "pool": "svc:gpu", "held": 0, "limit": 1, "final": True},
        *({"kind": "stream_event", "stream": "l1", "at": n, "job": "job-a", "seq": n, "type": t}
          for n, t in enumerate(("WAITING", "STEP_START", "JOB_RETRY"), 1)),
        # the final state
        job("job-a", "completed", "a", events=6, outputs={"0": "a-2"}),
        attempt("job-a", 1, 0, 1, "gpu", 2.0, 7.5, "lost", "lease-a1"),
        attempt("job-a", 2, 0, 2, "gpu", 8.0, 9.0, "completed", "lease-a2"),
        *events("job-a", "WAITING", "STEP_START", "JOB_RETRY", "STEP_START", "STEP_COMPLETE",
                "JOB_COMPLETE"),
        job("job-b", "completed", "b", events=7, steps=2, outputs={"0": "b-1", "1": "b-2"}),
        attempt("job-b", 1, 0, 1, "gpu", 10.0, 11.0, "completed", "lease-b1"),
        attempt("job-b", 2, 1, 1, "chat", 11.1, 12.0, "completed", "lease-b2"),
        *events("job-b", "WAITING", "JOB_SKIPPED", "STEP_START", "STEP_COMPLETE", "STEP_START",
                "STEP_COMPLETE", "JOB_COMPLETE"),
        job("job-c", "cancelled", "c", events=3),
        *events("job-c", "WAITING", "JOB_SKIPPED", "JOB_CANCELLED"),
        *(job(f"job-{name}", "failed", name) for name in "def"),
        *entries("credit:ann", ("user:ann", 20), ("house:mint", -20)),
        *entries("skip:job-b:s1", ("user:ann", -5), ("house:skips", 5)),
        *entries("skip:job-c:s2", ("user:ann", -5), ("house:skips", 5)),
        *entries("refund:skip:job-c:s2", ("user:ann", 5), ("house:skips", -5)),
        {"kind": "account", "name": "user:ann", "balance": 15},
        {"kind": "account", "name": "house:mint", "balance": -20},
        {"kind": "account", "name": "house:skips", "balance": 5},
        {"kind": "storage", "store": "postgres", "ok": True},
        {"kind": "end", "at": 60.0},
    ]  # fmt: skip


def submit(
    name: str,
    at: float,
    job_id: str | None,
    *,
    status: int = 202,
    code: str = "",
    again: bool = False,
) -> Records:
    sent = f"{name}-again" if again else name
    accepted = {name: job_id} if job_id else {}
    return asked(sent, "submit", at, status, code=code, accepted=accepted, operation=name)


def asked(name: str, op: str, at: float, status: int, **more: Any) -> Records:
    of_request: dict[str, Any] = {key: more.pop(key) for key in ("job", "operation") if key in more}
    return [
        {"kind": "request", "id": name, "at": at, "op": op, **of_request},
        {"kind": "response", "id": name, "at": at + 0.1, "status": status, **more},
    ]


def call(
    name: str,
    at: float,
    service: str,
    job_id: str,
    step: int,
    number: int,
    process: str = "",
    lease: str = "",
) -> dict[str, Any]:
    return {
        "kind": "call",
        "id": name,
        "at": at,
        "service": service,
        "job": job_id,
        "step": step,
        "attempt": number,
        "process": process,
        "lease": lease,
    }


def result(job_id: str, lease: str, at: float, code: str = "") -> dict[str, Any]:
    return {
        "kind": "result",
        "at": at,
        "job": job_id,
        "lease": lease,
        "status": "completed",
        "code": code,
    }


def job(name: str, status: str, operation: str, **more: Any) -> dict[str, Any]:
    return {"kind": "job", "id": name, "status": status, "operation": operation, **more}


def attempt(  # noqa: PLR0917 - the columns of a table
    job_id: str,
    fence: int,
    step: int,
    number: int,
    service: str,
    started: float,
    ended: float,
    outcome: str,
    lease: str,
) -> dict[str, Any]:
    return {
        "kind": "attempt",
        "job": job_id,
        "fence": fence,
        "step": step,
        "number": number,
        "service": service,
        "started_at": started,
        "ended_at": ended,
        "outcome": outcome,
        "lease": lease,
    }


def events(job_id: str, *types: str) -> Records:
    return [
        {"kind": "event", "job": job_id, "seq": seq, "type": name}
        for seq, name in enumerate(types, 1)
    ]


def entries(operation: str, *lines: tuple[str, int]) -> Records:
    return [
        {"kind": "entry", "operation": operation, "account": account, "amount": amount}
        for account, amount in lines
    ]


def checked(records: Records) -> HistoryReport:
    return check(read_history(json.dumps(each) for each in records))


def find(records: Records, kind: str, **fields: Any) -> dict[str, Any]:
    """The one record with these fields."""
    (found,) = [
        each
        for each in records
        if each["kind"] == kind and all(each.get(key) == value for key, value in fields.items())
    ]
    return found


def change(kind: str, /, *, to: dict[str, Any], **fields: Any) -> Callable[[Records], None]:
    return lambda records: find(records, kind, **fields).update(to)


def remove(kind: str, /, **fields: Any) -> Callable[[Records], None]:
    return lambda records: records.remove(find(records, kind, **fields))


def add(*more: dict[str, Any]) -> Callable[[Records], None]:
    return lambda records: records.extend(more)


def no_refund(records: Records) -> None:
    records[:] = [each for each in records if not str(each.get("operation")).startswith("refund")]
    find(records, "account", name="user:ann")["balance"] = 10
    find(records, "account", name="house:skips")["balance"] = 10


def charged_again(records: Records) -> None:
    records += entries("skip:job-b:s9", ("user:ann", -5), ("house:skips", 5))
    find(records, "account", name="user:ann")["balance"] = 10
    find(records, "account", name="house:skips")["balance"] = 10


def spent_below_zero(records: Records) -> None:
    records += entries("skip:job-x:s9", ("user:bob", -5), ("house:skips", 5))
    records.append({"kind": "account", "name": "user:bob", "balance": -5})
    find(records, "account", name="house:skips")["balance"] = 10


def never_accepted_again(after: float) -> Callable[[Records], None]:
    """Every submit that is sent later is refused."""

    def plant(records: Records) -> None:
        sent = {each["id"] for each in records if each["kind"] == "request" and each["at"] > after}
        for each in records:
            if each["kind"] == "response" and each["id"] in sent:
                each.update(status=503, code="storage_unavailable", accepted={})

    return plant


PLANTED: list[tuple[str, str, Callable[[Records], None]]] = [
    ("I1", "an accepted job is gone", remove("job", id="job-d")),
    ("I1", "a job never ends", change("job", id="job-d", to={"status": "queued"})),
    ("I1", "the final state was not read", remove("end")),
    ("I3", "a stale result was accepted", change("result", lease="lease-a1", to={"code": ""})),
    (
        "I3",
        "the output is that of the lost attempt",
        change("job", id="job-a", to={"outputs": {"0": "a-1"}}),
    ),
    (
        "I5",
        "the second lease begins while the first lives",
        change("attempt", job="job-a", fence=2, to={"started_at": 5.0}),
    ),
    (
        "I5",
        "two leases have one fence",
        change("attempt", job="job-a", fence=2, to={"fence": 1}),
    ),
    (
        "I7",
        "two slots of a service with limit 1",
        change("slot", taken_at=10.0, to={"taken_at": 8.5}),
    ),
    ("I7", "a slot is never freed", change("slot", taken_at=2.0, to={"freed_at": None})),
    ("I7", "the slots of a service were not recorded", remove("slot", service="chat")),
    ("I7", "two slots of one", change("slots", at=5.0, to={"held": 2})),
    ("I7", "a slot is left", change("slots", final=True, to={"held": 1})),
    ("I8", "two calls of one", change("call", id="b-1", to={"at": 8.5})),
    ("I8", "a call without an end", remove("call_end", id="a-2")),
    (
        "I12",
        "one key, two jobs in the answers",
        change("response", id="b-again", to={"accepted": {"b": "job-d"}}),
    ),
    (
        "I12",
        "one key, two jobs in the ledger",
        add(job("job-b2", "completed", "b", steps=0)),
    ),
    ("I14", "a skip is charged twice", charged_again),
    ("I14", "a cancelled skip is not refunded", no_refund),
    ("I14", "a balance below zero", spent_below_zero),
    ("I14", "a wrong balance", change("account", name="user:ann", to={"balance": 16})),
    (
        "I14",
        "an entry without its counterpart",
        remove("entry", operation="skip:job-b:s1", account="house:skips"),
    ),
    (
        "I14",
        "a skip was sold for nothing",
        add(*asked("s3", "skip", 4.0, 200, job="job-a", price=5)),
    ),
    ("I20", "a step is missing", remove("attempt", job="job-b", fence=2)),
    (
        "I20",
        "a step was completed twice",
        change("attempt", job="job-a", fence=1, to={"outcome": "completed"}),
    ),
    (
        "I20",
        "a step begins before the one in front of it",
        change("attempt", job="job-b", fence=1, to={"outcome": "failed"}),
    ),
    (
        "I21",
        "cancelled, and completed",
        change("job", id="job-c", to={"status": "completed", "steps": 0}),
    ),
    (
        "I21",
        "two ends",
        add({"kind": "event", "job": "job-c", "seq": 4, "type": "JOB_COMPLETE"}),
    ),
    (
        "I21",
        "the API disagrees with the ledger",
        change("job", id="job-b", to={"api_status": "failed"}),
    ),
    (
        "I21",
        "a client saw another end",
        add(*asked("g1", "get", 5.0, 200, job="job-a", state="cancelled")),
    ),
    ("I25", "an event is missing", remove("event", job="job-a", seq=3)),
    ("I25", "the last event is missing", change("job", id="job-c", to={"events": 4})),
    ("I25", "a subscriber missed one", remove("stream_event", seq=2)),
    (
        "I25",
        "a subscriber heard another one",
        change("stream_event", seq=2, to={"type": "JOB_PROMOTED"}),
    ),
    ("I33", "nothing is accepted after a partition", never_accepted_again(14.0)),
    ("I33", "a partition never ends", remove("fault_end", id="f2")),
    (
        "I34",
        "a full disk is answered with 500",
        change("response", id="e", to={"status": 500, "code": "internal"}),
    ),
    ("I34", "the storage is damaged", change("storage", to={"ok": False, "detail": "page 7"})),
    ("I34", "the storage was not checked", remove("storage")),
    ("I34", "nothing is accepted when there is room again", never_accepted_again(22.0)),
]


def test_a_clean_history_passes() -> None:
    report = checked(clean())
    assert report.violations == ()
    assert report.line == (
        "acked 6 · lost 0 · stale accepted 0 · over limit 0 · double charged 0 · "
        "recovery p99 4.5 s · faults 3 · seed 7"
    )


def test_a_fault_is_planted_for_every_promise() -> None:
    assert {promise for promise, _, _ in PLANTED} == set(CHECKS)


@pytest.mark.parametrize(
    ("promise", "plant"),
    [(p, plant) for p, _, plant in PLANTED],
    ids=[f"{p} {t}" for p, t, _ in PLANTED],
)
def test_a_planted_fault_is_found(promise: str, plant: Callable[[Records], None]) -> None:
    records = clean()
    plant(records)
    found = {each.promise for each in checked(records).violations}
    assert promise in found


@pytest.mark.parametrize(
    ("counter", "plant"),
    [
        ("lost 1", remove("job", id="job-d")),
        ("stale accepted 1", change("result", lease="lease-a1", to={"code": ""})),
        ("over limit 1", change("slots", at=5.0, to={"held": 2})),
        ("double charged 1", charged_again),
    ],
)
def test_the_line_counts_what_was_broken(counter: str, plant: Callable[[Records], None]) -> None:
    records = clean()
    plant(records)
    assert f" {counter} " in checked(records).line


def test_the_checker_knows_nothing_of_the_engine() -> None:
    """It imports the standard library and itself, so a mistake of the engine cannot hide in it."""
    folder = Path(fairlane.history_check.__file__).parent
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                own = name.startswith("fairlane.history_check")
                assert own or name.partition(".")[0] in sys.stdlib_module_names, (file, name)


def test_the_time_of_an_attempt_is_not_the_time_of_its_slot() -> None:
    """The process read the time, then the database stood still until the slot was free."""
    records = clean()
    find(records, "attempt", job="job-b", fence=1)["started_at"] = 8.5
    assert checked(records).ok


def test_a_ledger_alone_is_a_history() -> None:
    """A live system has no recorded requests; its state is checked all the same."""
    state = ("job", "attempt", "event", "entry", "account", "slots")
    records = [each for each in clean() if each["kind"] in state]
    assert checked(records).ok
    find(records, "slots", at=5.0)["held"] = 2
    assert [each.promise for each in checked(records).violations] == ["I7"]


@pytest.mark.parametrize("line", ["{", "[]", '{"kind": "nothing"}', '{"kind": "end"}'])
def test_a_line_that_is_no_record_is_named(line: str) -> None:
    with pytest.raises(HistoryError, match="line 2"):
        read_history(['{"kind": "end", "at": 1}', line])


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile((), 0.99) is None
    assert percentile((3.0,), 0.99) == 3.0
    assert percentile(tuple(range(1, 201)), 0.99) == 198
    assert percentile((1, 2, 3, 4), 0.5) == 2


@pytest.mark.parametrize(("plant", "code"), [(None, 0), (remove("job", id="job-d"), 1)])
def test_a_file_is_checked_from_the_command_line(
    tmp_path: Path, plant: Callable[[Records], None] | None, code: int
) -> None:
    records = clean()
    if plant:
        plant(records)
    file = tmp_path / "history.jsonl"
    file.write_text("\n".join(json.dumps(each) for each in records))
    done = subprocess.run(
        [sys.executable, "-m", "fairlane.history_check", file],
        check=False,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[-1].startswith("acked 6 · lost ")
