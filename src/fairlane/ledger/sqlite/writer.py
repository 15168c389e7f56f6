"""Group commit of the SQLite ledger, with one writer thread. Calls that arrive during a commit
share the next transaction, submits after everything else. Each call is answered after its durable
commit."""

from __future__ import annotations

import asyncio
import itertools
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from fairlane.errors import InvalidInput, SetupError
from fairlane.ledger.messages import WrittenOrNot, joined
from fairlane.ledger.sqlite import outbox
from fairlane.ledger.sqlite.counters import DraftCounters, QuotaCounters
from fairlane.ledger.store_stats import StoreWaits

Item = TypeVar("Item")
Out = TypeVar("Out")

MOST_CALLS, MOST_ITEMS = 256, 2500
"""The most calls and items that share one transaction. While it is written, the callers of the
previous one prepare their next calls."""

BESIDE_CALLS, BESIDE_ITEMS = 64, 500
"""The most submits that share a transaction with other calls, so that renewals, settlements and
cancellations do not wait behind a burst of submits."""

SPLIT_PARTS = 16


class SqliteTransaction:
    """The transaction that an operation writes with. Jobs it marks as touched are named in the
    outbox. An operation that accepts, ends, queues or dequeues a job updates the counters."""

    __slots__ = ("execute", "executemany", "tally", "touched")

    def __init__(self, connection: sqlite3.Connection, tally: QuotaCounters) -> None:
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.tally = DraftCounters(tally)
        self.touched: list[str] = []


Verb = Callable[[SqliteTransaction, Sequence[Any]], list[Any]]
"""Writes each item, in order, and returns as many outcomes."""


class SqliteCall(NamedTuple):
    is_new_work: bool
    verb: Verb
    items: Sequence[Any]
    future: asyncio.Future[WrittenOrNot[Any]]
    at: float


class SqliteAnswer(NamedTuple):
    future: asyncio.Future[WrittenOrNot[Any]]
    written: WrittenOrNot[Any] | Exception


class SqliteWriter:
    def __init__(self, connection: sqlite3.Connection, wrote: Callable[[int], None]) -> None:
        self._connection, self._wrote = connection, wrote
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[SqliteCall | None] = queue.SimpleQueue()
        self._first, self._new_work = deque[SqliteCall](), deque[SqliteCall]()
        self._received_all = False
        self.waits = StoreWaits()
        self._closed = False
        self._unpublished: dict[int, int] = {}
        self._published: list[int] = []
        (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM outbox").fetchone()
        self._receipts = itertools.count(last + 1)
        self.tally = QuotaCounters(connection)
        self._thread = threading.Thread(target=self._run, name="fairlane-writer", daemon=True)
        self._thread.start()

    def write(
        self, verb: Callable[[SqliteTransaction, Sequence[Item]], list[Out]], items: Sequence[Item]
    ) -> asyncio.Future[WrittenOrNot[Out]]:
        """Durable when the future resolves."""
        return self._ask(verb, items, is_new_work=False)

    def admit(
        self, verb: Callable[[SqliteTransaction, Sequence[Item]], list[Out]], items: Sequence[Item]
    ) -> asyncio.Future[WrittenOrNot[Out]]:
        """Write submits, which have lower priority than all other calls. Durable when the future
        resolves."""
        return self._ask(verb, items, is_new_work=True)

    def _ask(
        self, verb: Verb, items: Sequence[Any], *, is_new_work: bool
    ) -> asyncio.Future[WrittenOrNot[Any]]:
        future: asyncio.Future[WrittenOrNot[Any]] = self._loop.create_future()
        if self._closed:
            future.set_exception(SetupError("the ledger is closed"))
        else:
            self._calls.put(SqliteCall(is_new_work, verb, items, future, perf_counter()))
        return future

    def forget(self, receipts: Iterable[int]) -> None:
        """Another caller has published and deleted these rows."""
        for receipt in receipts:
            self._unpublished.pop(receipt, None)

    def published(self, receipts: Iterable[int]) -> None:
        """The index has applied one of the calls behind each of these outbox rows. When it has
        applied all calls of a row, the next transaction deletes the row."""
        for receipt in receipts:
            left = self._unpublished.get(receipt, 0) - 1
            if left > 0:
                self._unpublished[receipt] = left
            elif self._unpublished.pop(receipt, None) is not None:
                self._published.append(receipt)

    async def close(self) -> None:
        """Write what was requested before; refuse later requests."""
        if not self._closed:
            self._closed = True
            self._calls.put(None)
        await asyncio.to_thread(self._thread.join)

    # --- in the writer's thread ------------------------------------------------------------------
    def _run(self) -> None:
        while calls := self._next():
            self.waits.observe(perf_counter() - min(call.at for call in calls))
            answers = self._commit(calls)
            try:
                self._loop.call_soon_threadsafe(_deliver, self._loop, answers)
            except RuntimeError:
                break  # the event loop is closed, so no caller waits
            self._wrote(sum(len(call.items) for call in calls))

    def _next(self) -> list[SqliteCall]:
        """The calls that share the next transaction. Empty when all is written and the writer is
        closed."""
        self._receive_calls()
        calls = _some_of(self._first, MOST_CALLS, MOST_ITEMS)
        if calls:
            return calls + _some_of(self._new_work, BESIDE_CALLS, BESIDE_ITEMS)
        return _some_of(self._new_work, MOST_CALLS, MOST_ITEMS)

    def _receive_calls(self) -> None:
        """Move all requested calls from the queue; block only if there is no other work."""
        while not self._received_all:
            try:
                call = self._calls.get(block=not (self._first or self._new_work))
            except queue.Empty:
                break
            if call is None:
                self._received_all = True
            else:
                (self._new_work if call.is_new_work else self._first).append(call)

    def _commit(self, calls: list[SqliteCall]) -> list[SqliteAnswer]:
        try:
            return self._transaction(calls)
        except sqlite3.OperationalError as error:
            return [SqliteAnswer(call.future, error) for call in calls]
        except Exception as error:  # noqa: BLE001 - one item's data: find it, write the rest
            return self._without_failed_item(calls, error)

    def _without_failed_item(self, calls: list[SqliteCall], error: Exception) -> list[SqliteAnswer]:
        if len(calls) > 1:
            half = len(calls) // 2
            return self._commit(calls[:half]) + self._commit(calls[half:])
        (call,) = calls
        if len(call.items) <= 1:
            if isinstance(error, ValueError):
                error = InvalidInput(f"cannot be stored: {error}")
            return [SqliteAnswer(call.future, error)]
        half = len(call.items) // 2
        halves = [
            self._commit([call._replace(items=part)])[0].written
            for part in (call.items[:half], call.items[half:])
        ]
        return [SqliteAnswer(call.future, joined(halves, (half, len(call.items) - half)))]

    def _transaction(self, calls: list[SqliteCall]) -> list[SqliteAnswer]:
        connection = self._connection
        tx = SqliteTransaction(connection, self.tally)
        connection.execute("BEGIN IMMEDIATE")
        try:
            outcomes, touching = _run_verbs(tx, calls)
            receipts = self._note_touched(tx, touching)
            cleared = len(self._published)
            if cleared:
                outbox.clear(tx, self._published[:cleared])
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        for receipt in receipts:
            self._unpublished[receipt] = len(touching)
        del self._published[:cleared]
        tx.tally.commit()
        return [
            SqliteAnswer(call.future, WrittenOrNot(out, receipts if id(call) in touching else ()))
            for call, out in zip(calls, outcomes, strict=True)
        ]

    def _note_touched(self, tx: SqliteTransaction, touching: set[int]) -> tuple[int, ...]:
        if not touching:
            return ()
        receipt = next(self._receipts)
        outbox.insert(tx, receipt)
        return (receipt,)


def _some_of(calls: deque[SqliteCall], most_calls: int, most_items: int) -> list[SqliteCall]:
    taken: list[SqliteCall] = []
    items = 0
    while calls and len(taken) < most_calls and items < most_items:
        taken.append(calls.popleft())
        items += len(taken[-1].items)
    return taken


def _run_verbs(tx: SqliteTransaction, calls: list[SqliteCall]) -> tuple[list[list[Any]], set[int]]:
    """Run each operation's calls as one batch, operations in the order of their first call. Also
    returns the ids of the calls that changed a job's place in the index, which will be
    published."""
    batches: dict[Verb, list[SqliteCall]] = {}
    for call in calls:
        batches.setdefault(call.verb, []).append(call)
    outcomes: dict[int, list[Any]] = {}
    touching: set[int] = set()
    for verb, same in batches.items():
        before = len(tx.touched)
        results = iter(verb(tx, [item for call in same for item in call.items]))
        for call in same:
            outcomes[id(call)] = list(itertools.islice(results, len(call.items)))
        if len(tx.touched) > before:
            touching.update(id(call) for call in same)
    return [outcomes[id(call)] for call in calls], touching


def _deliver(loop: asyncio.AbstractEventLoop, answers: list[SqliteAnswer]) -> None:
    """Resolve some futures now and the rest in later event loop iterations, so that other tasks run
    in between."""
    if len(answers) > SPLIT_PARTS:
        loop.call_soon(_deliver, loop, answers[SPLIT_PARTS:])
    for future, written in answers[:SPLIT_PARTS]:
        if future.cancelled():
            continue
        if isinstance(written, Exception):
            future.set_exception(written)
        else:
            future.set_result(written)
