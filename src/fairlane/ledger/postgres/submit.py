"""Submit in PostgreSQL: idempotency key, quota and job row in one transaction.

Several processes submit at once. A transaction that counts a user's jobs holds that user's lock
until its commit. An idempotency key belongs to the transaction that inserts it first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from fairlane.errors import FairlaneError
from fairlane.ids import floor
from fairlane.ledger.job_columns import (
    COLUMNS,
    OWN,
    RARE_OWN,
    RARE_SHARED,
    SHARED,
    Column,
    values_of,
)
from fairlane.ledger.messages import Common, Submission, SubmissionAccepted, SubmitOutcome
from fairlane.ledger.postgres.idempotency import IdempotencyKeys
from fairlane.ledger.postgres.job_lists import OLDEST_LIVE, add_to_live_list
from fairlane.ledger.postgres.locks import hold_users
from fairlane.ledger.postgres.named_parameters import Statement, table
from fairlane.ledger.postgres.transaction import (
    AT_ONCE_A_VERB,
    MAX_TRANSACTION_ITEMS,
    QUEUE_LOCK,
    PostgresTransaction,
)
from fairlane.ledger.rows import MAX_INLINE_BYTES
from fairlane.policy.quotas import HOUR_MICROSECONDS, Quota, Usage, admit, hour_excess

EXACT_COUNT_MARGIN = 25 * AT_ONCE_A_VERB * MAX_TRANSACTION_ITEMS
"""How close to its limit the queue is counted exactly: the uncommitted submits of 25 processes.
With more processes, or larger fan-outs in flight, the limit may be exceeded by the difference."""


def _copy_of(column: Column) -> Column | None:
    """The column that has the same value, so that the value is sent once."""
    same = next((each for each in COLUMNS if each.name == column.source), None)
    return same if same is not None and same.write is column.write else None


def sent(columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if _copy_of(column) is None]


def insert_list(columns: Sequence[Column]) -> str:
    return ", ".join(column.postgres_name or column.name for column in columns)


def select_list(columns: Sequence[Column]) -> str:
    """The source of each column in the table of sent values."""
    return insert_list([_copy_of(column) or column for column in columns])


def typed(columns: Sequence[Column]) -> str:
    return ", ".join(f"{column.postgres_name or column.name} {column.type}" for column in columns)


OWN_AND_RARE, SHARED_AND_RARE = OWN + RARE_OWN, SHARED + RARE_SHARED
own_values = values_of(Submission, sent(OWN_AND_RARE))
shared_values = values_of(Common, sent(SHARED_AND_RARE))

INSERT = Statement(f"""
INSERT INTO jobs ({insert_list(OWN_AND_RARE + SHARED_AND_RARE)})
SELECT {select_list(OWN_AND_RARE + SHARED_AND_RARE)}
FROM {table(typed(sent(OWN_AND_RARE + SHARED_AND_RARE)))}
""")


async def submit(tx: PostgresTransaction, items: Sequence[Submission]) -> list[SubmitOutcome]:
    quotas = await _PostgresQuotas.of(tx, items)
    known = {row[0] for row in await tx.fetch(KNOWN, [item.id for item in items])}
    # Each job once: a retry after a lost response may be in the same batch, or may be written
    # already. The latter is known only when the quotas' locks are held.
    news = list({item.id: item for item in items if item.id not in known}.values())
    keys = await IdempotencyKeys.of(tx, news)
    answers: dict[str, SubmitOutcome] = {}
    accepted: list[Submission] = []
    for item in news:
        answer = keys.earlier(item) or await quotas.refusal(item)
        if answer is not None:
            answers[item.id] = answer
        else:
            keys.use(item)
            accepted.append(item)
    if await keys.take():
        for item in news:
            first = keys.elsewhere(item)
            if first is not None:
                answers[item.id] = first
    written = [item for item in accepted if item.id not in answers]
    await _insert(tx, sorted((each for item in written for each in (item, *item.cells)), key=_id))
    return [answers.get(item.id) or SubmissionAccepted(item.id, item.common.tier) for item in items]


_id = attrgetter("id")

KNOWN = "SELECT id FROM jobs WHERE id = ANY($1)"


async def _insert(tx: PostgresTransaction, items: list[Submission]) -> None:
    if not items:
        return
    await tx.execute(
        *INSERT.rows([own_values(item) + shared_values(item.common) for item in items])
    )
    long = [item for item in items if len(item.input or "") > MAX_INLINE_BYTES]
    if long:
        await tx.execute(
            "INSERT INTO inputs SELECT * FROM unnest($1::text[], $2::text[])",
            [item.id for item in long],
            [item.input for item in long],
        )
    await add_to_live_list(tx, [item.id for item in items])
    waiting = [item.id for item in items if not item.cells]
    tx.touched += waiting
    tx.line += len(waiting)


# --- quotas ------------------------------------------------------------------------------------
OF_USER, OF_KEY = (
    f"FROM jobs WHERE tenant = :tenant AND {mine} "
    "AND id >= :first AND created_at > :since AND cells = 0"
    for mine in ("username = :who", "username IS NULL AND key = :who")
)
RECENT_OF_USER, RECENT_OF_KEY = (
    Statement(f"SELECT count(*), min(created_at) {jobs}") for jobs in (OF_USER, OF_KEY)
)
NTH_OF_USER, NTH_OF_KEY = (
    Statement(f"SELECT created_at {jobs} ORDER BY created_at LIMIT 1 OFFSET :earlier")
    for jobs in (OF_USER, OF_KEY)
)


class _PostgresQuotas:
    """Usage counted from the rows, plus what this batch has already accepted."""

    def __init__(self, tx: PostgresTransaction) -> None:
        self._tx = tx
        self._own: dict[tuple[str, str], tuple[int | None, int | None]] = {}
        self._usage: dict[str, Usage] = {}
        self._waiting = 0

    @classmethod
    async def of(cls, tx: PostgresTransaction, items: Sequence[Submission]) -> _PostgresQuotas:
        quotas = cls(tx)
        await quotas._read_own(items)
        counted = {
            item.who: item
            for item in items
            if item.refusal is None and quotas._quota(item).counts_user
        }
        if counted:
            await hold_users(tx, counted)
        for who, item in counted.items():
            quotas._usage[who] = await quotas._count(item)
        quotas._waiting = await hold_queue(tx, [item.common.quota for item in items])
        return quotas

    async def refusal(self, item: Submission) -> FairlaneError | None:
        if item.refusal is not None:
            return item.refusal
        jobs, quota = len(item.cells) or 1, self._quota(item)
        usage = self._usage.get(item.who, Usage())._replace(waiting=self._waiting)
        refused = admit(quota, usage, jobs)
        if refused is None:
            self._accept(item, jobs)
        elif (excess := hour_excess(quota, usage, jobs)) > 1:
            refused.frees_at = await self._hour_frees_at(item, excess, usage)
        return refused

    async def _hour_frees_at(self, item: Submission, excess: int, usage: Usage) -> int | None:
        """When so many of the user's jobs of the last hour are an hour old (µs). The jobs that this
        batch has accepted are the newest. None if there are not so many."""
        if excess > usage.last_hour:
            return None
        nth = NTH_OF_KEY if item.user is None else NTH_OF_USER
        found = await self._tx.fetchval(*nth(**_recent(item), earlier=excess - 1))
        return (found if found is not None else item.common.created_at) + HOUR_MICROSECONDS

    def _accept(self, item: Submission, jobs: int) -> None:
        self._waiting += jobs
        if item.who in self._usage:
            self._usage[item.who] = self._usage[item.who].plus(jobs, item.common.created_at)

    def _quota(self, item: Submission) -> Quota:
        """The tier's quota, unless this user has limits of their own."""
        own = self._own.get((item.common.tenant, item.user)) if item.user is not None else None
        if own is None:
            return item.common.quota
        pending, per_hour = own
        return item.common.quota._replace(
            pending=item.common.quota.pending if pending is None else pending,
            per_hour=item.common.quota.per_hour if per_hour is None else per_hour,
        )

    async def _read_own(self, items: Iterable[Submission]) -> None:
        users = {(item.common.tenant, item.user) for item in items if item.user is not None}
        if not users:
            return
        tenants, names = zip(*users, strict=True)
        for tenant, user, pending, per_hour in await self._tx.fetch(
            "SELECT tenant, username, pending, per_hour FROM quotas WHERE (tenant, username) IN "
            "(SELECT * FROM unnest($1::text[], $2::text[]))",
            tenants,
            names,
        ):
            self._own[tenant, user] = (pending, per_hour)

    async def _count(self, item: Submission) -> Usage:
        mine = "username = $2" if item.user is not None else "username IS NULL AND key = $2"
        pending = await self._tx.fetchval(
            f"SELECT count(*) FROM jobs WHERE tenant = $1 AND {mine} AND finished_at IS NULL "
            f"AND cells = 0 AND id >= ({OLDEST_LIVE})",
            item.common.tenant,
            item.user if item.user is not None else item.common.key,
        )
        number, oldest = 0, None
        if self._quota(item).per_hour:
            recent = RECENT_OF_KEY if item.user is None else RECENT_OF_USER
            ((number, oldest),) = await self._tx.fetch(*recent(**_recent(item)))
        return Usage(pending, number, oldest or 0)


def _recent(item: Submission) -> dict[str, object]:
    """The parameters that find the user's jobs of the last hour."""
    since = item.common.created_at - HOUR_MICROSECONDS
    who = item.user if item.user is not None else item.common.key
    return {"tenant": item.common.tenant, "who": who, "first": floor(since), "since": since}


LINE = "SELECT sum(queued)::bigint FROM line"


async def hold_queue(tx: PostgresTransaction, quotas: Iterable[Quota]) -> int:
    """The number of queued jobs, if there is a limit. Near the limit, submits are serialized by a
    lock."""
    most = min((quota.waiting for quota in quotas if quota.waiting), default=0)
    if not most:
        return 0
    waiting: int = await tx.fetchval(LINE)
    if waiting + EXACT_COUNT_MARGIN > most:
        await tx.execute("SELECT pg_advisory_xact_lock($1)", QUEUE_LOCK)
        waiting = await tx.fetchval(LINE)
    return waiting
