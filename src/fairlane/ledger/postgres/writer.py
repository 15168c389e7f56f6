"""Group commit of the PostgreSQL ledger. Waiting calls of one operation share a transaction. Each
call is answered after its commit, and a call that cannot be written never fails the rest.

A commit whose response was lost may have happened. The same calls are then run again, and every
operation is idempotent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import asyncpg

from fairlane.errors import InvalidInput, SetupError
from fairlane.ledger.messages import WrittenOrNot, joined
from fairlane.ledger.postgres.fast_path import QUICK, FastPathExtras
from fairlane.ledger.postgres.named_parameters import Statement
from fairlane.ledger.postgres.outbox import DELETE, INSERT
from fairlane.ledger.postgres.read_connection import Connection
from fairlane.ledger.postgres.transaction import (
    AT_ONCE,
    AT_ONCE_A_VERB,
    MAX_TRANSACTION_ITEMS,
    PostgresTransaction,
    Verb,
)
from fairlane.ledger.store_stats import StoreWaits

Item = TypeVar("Item")
Out = TypeVar("Out")

SPLIT_PARTS = 16
TRIES, PATIENCE = 5, 0.7
"""How often a conflict is retried, and how many seconds an unavailable server is waited for. Short,
so that the caller learns of an outage within a second."""

HOT_VERB_TIMEOUT_SECONDS = 15.0
"""Seconds a hot operation may take: longer than the server needs to end a process that holds
locks."""

FULL_SECONDS = 5.0
"""Seconds for which a disk counts as full after a disk-full error."""

LOST = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
)
CLASHES = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)


class PostgresCall(NamedTuple):
    items: Sequence[Any]
    future: asyncio.Future[WrittenOrNot[Any]]
    at: float


class PostgresWriter:
    """Runs the ledger's writes. `refusal` returns the error to raise if nothing may be written
    now."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        longest: float = HOT_VERB_TIMEOUT_SECONDS,
        refusal: Callable[[], Exception | None] = lambda: None,
    ) -> None:
        self._pool, self._longest, self._refusal = pool, longest, refusal
        self.waits = StoreWaits()
        self._waiting: dict[Verb, list[PostgresCall]] = {}
        self._open: dict[Verb, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unpublished: dict[int, int] = {}
        self._published: list[int] = []
        self._closed = False
        self._full: tuple[float, asyncpg.DiskFullError] | None = None

    def full_lately(self) -> asyncpg.DiskFullError | None:
        """The server's last disk-full error, for a few seconds."""
        if self._full is None:
            return None
        at, error = self._full
        return error if asyncio.get_running_loop().time() - at < FULL_SECONDS else None

    def write(
        self,
        verb: Callable[[PostgresTransaction, Sequence[Item]], Awaitable[list[Out]]],
        items: Sequence[Item],
    ) -> asyncio.Future[WrittenOrNot[Out]]:
        """Durable when the future resolves."""
        future: asyncio.Future[WrittenOrNot[Any]] = asyncio.get_running_loop().create_future()
        refusal = SetupError("the ledger is closed") if self._closed else self._refusal()
        if refusal is not None:
            future.set_exception(refusal)
        else:
            self._waiting.setdefault(verb, []).append(PostgresCall(items, future, perf_counter()))
            self._start()
        return future

    def published(self, receipts: Iterable[int]) -> None:
        """The index has applied one of the calls behind each of these outbox rows. When it has
        applied all calls of a row, the next transaction deletes the row."""
        for receipt in receipts:
            left = self._unpublished.get(receipt, 0) - 1
            if left > 0:
                self._unpublished[receipt] = left
            elif self._unpublished.pop(receipt, None) is not None:
                self._published.append(receipt)

    def forget(self, receipts: Iterable[int]) -> None:
        """Another caller has published and deleted these rows."""
        for receipt in receipts:
            self._unpublished.pop(receipt, None)

    async def close(self) -> None:
        """Write what was requested before; refuse later requests."""
        self._closed = True
        while self._tasks:
            await asyncio.wait(self._tasks)

    # --- transactions ------------------------------------------------------------------------
    def _start(self) -> None:
        for verb in list(self._waiting):
            if len(self._tasks) < AT_ONCE and self._open.get(verb, 0) < AT_ONCE_A_VERB:
                self._open[verb] = self._open.get(verb, 0) + 1
                task = asyncio.create_task(self._run(verb))
                self._tasks.add(task)

    async def _run(self, verb: Verb) -> None:
        try:
            await asyncio.sleep(0)  # simultaneous calls share the transaction
            calls = self._take(verb)
            if calls:
                await self._answer(verb, calls)
        finally:
            self._open[verb] -= 1
            self._tasks.discard(asyncio.current_task())
            self._start()

    def _take(self, verb: Verb) -> list[PostgresCall]:
        waiting = self._waiting.pop(verb, [])
        items = number = 0
        while number < len(waiting) and (number == 0 or items < MAX_TRANSACTION_ITEMS):
            items += len(waiting[number].items)
            number += 1
        if number < len(waiting):
            self._waiting[verb] = waiting[number:]
        return waiting[:number]

    async def _answer(self, verb: Verb, calls: list[PostgresCall]) -> None:
        for call, answer in zip(calls, await self._commit(verb, calls), strict=True):
            if call.future.done():
                continue
            if isinstance(answer, BaseException):
                call.future.set_exception(answer)
            else:
                call.future.set_result(answer)

    async def _commit(
        self, verb: Verb, calls: list[PostgresCall]
    ) -> list[WrittenOrNot[Any] | Exception]:
        try:
            return list(await self._durable(verb, calls))
        except ValueError as error:  # asyncpg raises it, too, for values it cannot send
            return await self._without_failed_item(verb, calls, error)
        except (*LOST, *CLASHES, TimeoutError) as error:
            return [error] * len(calls)
        except asyncpg.DiskFullError as error:
            self._full = asyncio.get_running_loop().time(), error
            return [error] * len(calls)
        except Exception as error:  # noqa: BLE001 - one item's data: find it, write the rest
            return await self._without_failed_item(verb, calls, error)

    async def _without_failed_item(
        self, verb: Verb, calls: list[PostgresCall], error: Exception
    ) -> list[WrittenOrNot[Any] | Exception]:
        if len(calls) > 1:
            half = len(calls) // 2
            return [
                *await self._commit(verb, calls[:half]),
                *await self._commit(verb, calls[half:]),
            ]
        (call,) = calls
        if len(call.items) <= 1:
            unfit = isinstance(error, ValueError | asyncpg.DataError)
            return [InvalidInput(f"cannot be stored: {error}") if unfit else error]
        half = len(call.items) // 2
        parts = call.items[:half], call.items[half:]
        halves = [(await self._commit(verb, [call._replace(items=part)]))[0] for part in parts]
        return [joined(halves, [len(part) for part in parts])]

    async def _durable(self, verb: Verb, calls: list[PostgresCall]) -> list[WrittenOrNot[Any]]:
        """Run the calls until the database has confirmed a commit or has refused them."""
        clashes, lost_since = 0, None
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await self._transaction(verb, calls)
            except (*CLASHES, asyncpg.UniqueViolationError):
                # a concurrently committed row: the retry sees it
                clashes += 1
                if clashes >= TRIES:
                    raise
            except ValueError:
                raise  # asyncpg reports values it cannot send as an InterfaceError
            except TimeoutError:
                raise  # a TimeoutError is an OSError, but the caller has waited long enough
            except LOST:
                lost_since = lost_since or loop.time()
                lost_for = loop.time() - lost_since
                if self._closed or self._refusal() is not None or lost_for > PATIENCE:
                    raise
                await asyncio.sleep(0.05)

    async def _transaction(self, verb: Verb, calls: list[PostgresCall]) -> list[WrittenOrNot[Any]]:
        items = [item for call in calls for item in call.items]
        cleared, self._published = self._published, []
        longest = self._longest if verb in QUICK else None
        try:
            async with asyncio.timeout(longest), self._pool.acquire() as connection:
                self.waits.observe(perf_counter() - calls[0].at)
                outcomes, receipts = await _write(connection, verb, items, cleared)
        except BaseException:
            self._published += cleared
            raise
        for receipt in receipts:
            self._unpublished[receipt] = len(calls)
        found = iter(outcomes)
        return [WrittenOrNot([next(found) for _ in call.items], receipts) for call in calls]


async def _write(
    connection: Connection, verb: Verb, items: Sequence[Any], cleared: list[int]
) -> tuple[list[Any], tuple[int, ...]]:
    """Run the calls in one statement if possible, otherwise by the operation's own code."""
    part = random.randrange(SPLIT_PARTS)
    if items and verb in QUICK:
        written = await QUICK[verb](connection, items, FastPathExtras(part, cleared))
        if written is not None:
            return written
    async with connection.transaction():
        tx = PostgresTransaction(connection)
        outcomes = await verb(tx, items)
        receipts = ()
        if tx.touched or cleared or tx.line or tx.running:
            note = NOTE(
                touched=tx.touched, cleared=cleared, line=tx.line, running=tx.running, part=part
            )
            found = await tx.fetch(*note)
            receipts = tuple(row[0] for row in found)
        return outcomes, receipts


NOTE = Statement(f"""
WITH cleared AS ({DELETE}), counted AS (
    UPDATE line SET queued = queued + :line, running = running + :running
    WHERE part = :part AND (:line <> 0 OR :running <> 0)
)
{INSERT}
""")
"""Last in its transaction, because it locks this partition of the queue counter until the
commit."""
