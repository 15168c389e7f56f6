"""Credits: append-only, double-entry bookkeeping. The entries of an operation sum to zero."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.errors import InsufficientCredits
from fairlane.ledger.credit_account_names import SKIPS, is_house, refund_operation
from fairlane.ledger.postgres.named_parameters import Statement, table
from fairlane.ledger.postgres.read_connection import Connection, brief
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.ledger.statement import CreditStatement, StatementQuery, credit_statement
from fairlane.model.job import Band

CREDITS_LOCK = 4221
"""Advisory lock: credits move in one transaction at a time. Almost every transfer has the skips
account on one side, so transfers would wait for that row anyway."""

OPEN = """
INSERT INTO accounts SELECT name, 0 FROM unnest($1::text[]) name ON CONFLICT DO NOTHING
"""
BOOK = """
UPDATE accounts SET balance = balance + v.change
FROM unnest($1::text[], $2::bigint[]) v (name, change) WHERE accounts.name = v.name
"""
ENTER = Statement(f"""
INSERT INTO entries (operation, account, amount, at, note)
SELECT :operation, v.name, v.change, :at, :note FROM {table("name text, change bigint")}
""")


async def balance(tx: PostgresTransaction | Connection, account: str) -> int:
    found = await tx.fetchval("SELECT balance FROM accounts WHERE name = $1", account)
    return found or 0


async def is_done(tx: PostgresTransaction, operation: str) -> bool:
    return bool(
        await tx.fetchval("SELECT EXISTS (SELECT 1 FROM entries WHERE operation = $1)", operation)
    )


async def booked(tx: PostgresTransaction, operation: str, account: str) -> int | None:
    """The amount this operation booked to the account; None if it was not done."""
    found: int | None = await tx.fetchval(
        "SELECT amount FROM entries WHERE operation = $1 AND account = $2", operation, account
    )
    return found


async def transfer(
    tx: PostgresTransaction,
    operation: str,
    source: str,
    target: str,
    amount: int,
    now: int,
    note: str,
) -> InsufficientCredits | None:
    """Transfer credits, idempotently: once per operation name. The entries of a user's account have
    rising times, so they are in the order of booking."""
    await tx.execute("SELECT pg_advisory_xact_lock($1)", CREDITS_LOCK)
    if await is_done(tx, operation):
        return None
    accounts = [source, target]
    await tx.execute(OPEN, accounts)
    available = await balance(tx, source)
    if available < amount and not is_house(source):
        return InsufficientCredits(amount, available)
    at = max(now, await _last_booking(tx, target if is_house(source) else source) + 1)
    changes = [-amount, amount]
    await tx.execute(BOOK, accounts, changes)
    await tx.execute(*ENTER(operation=operation, name=accounts, change=changes, at=at, note=note))
    return None


async def _last_booking(tx: PostgresTransaction, account: str) -> int:
    last = await tx.fetchval("SELECT max(at) FROM entries WHERE account = $1", account)
    return last or 0


PAGE = """
SELECT operation, amount, at, note FROM entries WHERE account = $1 AND at >= $2 AND at < $3
ORDER BY at DESC LIMIT $4
"""
NEWER = """
SELECT coalesce(sum(amount), 0)::bigint FROM entries WHERE account = $1 AND at >= $2
"""


async def statement(connection: Connection, query: StatementQuery) -> CreditStatement:
    """Balance and entries are read in one snapshot, so they agree."""
    account, since, before, limit = query
    async with brief(connection):
        now = await balance(connection, account)
        rows = await connection.fetch(PAGE, account, since, before, limit)
        newer = await connection.fetchval(NEWER, account, before)
    return credit_statement(account, now, newer, [tuple(row) for row in rows])


SKIP_COSTS = """
SELECT jobs.id, -entries.amount FROM jobs
JOIN entries ON entries.operation = jobs.charge AND entries.amount < 0
WHERE jobs.id = ANY($1)
"""


async def skip_costs(connection: Connection, jobs: Sequence[str]) -> dict[str, int]:
    """What was paid for the skips of these jobs. A job without a skip is left out."""
    return {row[0]: row[1] for row in await connection.fetch(SKIP_COSTS, list(jobs))}


async def refund(tx: PostgresTransaction, job: str, now: int) -> None:
    """Refund a skip that had no effect in full, once. The job loses its place at the front."""
    charge = await tx.fetchval("SELECT charge FROM jobs WHERE id = $1 FOR UPDATE", job)
    if charge is None:
        return
    paid = await tx.fetchrow(
        "SELECT account, -amount FROM entries WHERE operation = $1 AND amount < 0", charge
    )
    if paid is not None:
        account, amount = paid
        note = f"skip of {job} refunded"
        await transfer(tx, refund_operation(charge), SKIPS, account, amount, now, note)
    await tx.execute(
        "UPDATE jobs SET charge = NULL, band = $2, paid_at = 0 WHERE id = $1", job, Band.TIER
    )
