"""I14: credits are double entry. No skip is charged twice, no balance is wrong or negative."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from fairlane.history_check.durability import ACCEPTED, ENDED
from fairlane.history_check.records import AccountRecord, EntryRecord, History
from fairlane.history_check.report import Violation

SKIP, REFUND, HOUSE = "skip:", "refund:", "house:"


def books_are_right(history: History) -> Iterator[Violation]:
    yield from _balanced(history, history.of(EntryRecord))
    charges, refunds = _skips(history)
    for job, its in charges.items():
        open_charges = [name for name in its if name not in refunds]
        if len(open_charges) > 1:
            yield Violation(
                "I14", f"job {job} was charged {len(open_charges)} times", "double charged"
            )
        if open_charges:
            yield from _should_be_refunded(history, job)
    known = {name: price for its in charges.values() for name, price in its.items()}
    for name, amount in refunds.items():
        if amount != known.get(name):
            yield Violation("I14", f"{name} was charged {known.get(name)}, refunded {amount}")
    for request, response in history.answers("skip"):
        if response.status in ACCEPTED and response.price and request.job not in charges:
            yield Violation("I14", f"job {request.job}: a skip was sold, and nothing is charged")


def _skips(history: History) -> tuple[dict[str, dict[str, int]], Counter[str]]:
    """The price of each skip, by job and operation, and what was refunded, by operation."""
    charges: dict[str, dict[str, int]] = defaultdict(dict)
    refunds = Counter[str]()
    for each in history.of(EntryRecord):
        if each.account.startswith(HOUSE):
            continue
        if each.operation.startswith(SKIP):
            job = each.operation.removeprefix(SKIP).partition(":")[0]
            charges[job][each.operation] = -each.amount
        elif each.operation.startswith(REFUND):
            refunds[each.operation.removeprefix(REFUND)] += each.amount
    return charges, refunds


def _balanced(history: History, entries: list[EntryRecord]) -> Iterator[Violation]:
    by_operation, by_account = Counter[str](), Counter[str]()
    seen = Counter[tuple[str, str]]()
    for each in entries:
        by_operation[each.operation] += each.amount
        by_account[each.account] += each.amount
        seen[each.account, each.operation] += 1
    for operation, total in by_operation.items():
        if total:
            yield Violation("I14", f"the entries of {operation} sum to {total}, not 0")
    for (account, operation), n in seen.items():
        if n > 1:
            yield Violation(
                "I14", f"{operation} was booked {n} times on {account}", "double charged"
            )
    for account_ in history.of(AccountRecord):
        if account_.balance != by_account[account_.name]:
            yield Violation(
                "I14",
                f"{account_.name} has {account_.balance}, its entries sum to "
                f"{by_account[account_.name]}",
            )
        if account_.balance < 0 and not account_.name.startswith(HOUSE):
            yield Violation("I14", f"{account_.name} has {account_.balance}, below 0")


def _should_be_refunded(history: History, job: str) -> Iterator[Violation]:
    """A job that ended without a completed step keeps no charge."""
    found = history.jobs.get(job)
    if found is None or found.status not in ENDED - {"completed"}:
        return
    if not any(each.outcome == "completed" for each in history.attempts[job]):
        yield Violation("I14", f"job {job} is {found.status} without a step, and not refunded")
