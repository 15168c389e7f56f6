"""The columns of a job row (object-relational mapping), once for both stores: how each is read, and
what a submit writes into it.

Select lists, insert lists, placeholders and row tuples are made from this table. A new column needs
a line here, a migration for each store, and its field in `Job` and, if a submit writes it, in
`Common`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from fairlane.ledger.messages import Common, Submission
from fairlane.ledger.rows import MAX_INLINE_BYTES, dumps, loads, plan, plan_text
from fairlane.model.construct import maker
from fairlane.model.fanout import OnCellFailure
from fairlane.model.job import Band, Error, Job, Progress
from fairlane.model.state import Code, State


class Column(NamedTuple):
    """A column. `type` is its PostgreSQL type. `read` converts the stored value into the field of a
    `Job`. `write` converts the submission's field `source` (empty = the column's name) into the
    stored value. `rare`: most submits leave the column empty. `postgres_name`: the column's name in
    PostgreSQL, where `name` is a reserved word."""

    name: str
    type: str = "text"
    read: Callable[[Any], Any] | None = None
    write: Callable[[Any], Any] | None = None
    source: str = ""
    rare: bool = False
    postgres_name: str = ""


def _tags(text: str | None) -> tuple[str, ...]:
    return tuple(loads(text)) if text else ()


def _progress(text: str | None) -> Progress | None:
    return Progress(*loads(text)) if text else None


def _loads_or_none(text: str | None) -> Any:
    return loads(text) if text else None


def _dumps_or_none(value: Any) -> str | None:
    return dumps(value) if value else None


def _inline(text: str | None) -> str | None:
    return text if text is None or len(text) <= MAX_INLINE_BYTES else None


def _on_cell_failure(text: str | None) -> OnCellFailure:
    return OnCellFailure(text) if text else OnCellFailure.CONTINUE


def _unless_continue(value: OnCellFailure) -> str | None:
    return None if value is OnCellFailure.CONTINUE else value


STATES = {str(state): state for state in State}

COLUMNS = (
    Column("id"),
    Column("tenant"),
    Column("key"),
    Column("user", postgres_name="username"),
    Column("name"),
    Column("state", read=STATES.__getitem__),
    Column("plan", read=plan, write=plan_text),
    Column("step", "bigint"),
    Column("model"),
    Column("duration", "float8"),
    Column("tier"),
    Column("level", source="tier"),
    Column("promoted_at", "bigint"),
    Column("band", "bigint", read=tuple(Band).__getitem__),
    Column("paid_at", "bigint"),
    Column("rev", "bigint"),
    Column("seq", "bigint"),
    Column("written", "bigint"),
    Column("attempt", "bigint"),
    Column("timeout", "bigint"),
    Column("lane", write=lambda plan: plan[0].lane, source="plan"),
    Column("token"),
    Column("fence", "bigint"),
    Column("worker"),
    Column("region"),
    Column("lease_until", "bigint"),
    Column("deadline", "bigint"),
    Column("started_at", "bigint"),
    Column("waited", "bigint"),
    Column("ready_at", "bigint"),
    Column("created_at", "bigint"),
    Column("finished_at", "bigint"),
    Column("error_code"),
    Column("error_message"),
    Column("progress", read=_progress),
    Column("parent", rare=True),
    Column("cell", read=_loads_or_none, write=_dumps_or_none, rare=True),
    Column("cells", "bigint", write=len, rare=True),
    Column("cells_left", "bigint", write=len, source="cells", rare=True),
    Column("tags", read=_tags, write=_dumps_or_none, rare=True),
    Column("callback", rare=True),
    Column("trace", rare=True),
    Column("on_cell_failure", read=_on_cell_failure, write=_unless_continue, rare=True),
    Column("give_up_at", "bigint"),
    Column("input", write=_inline),
)


# --- reading -------------------------------------------------------------------------------------
_STORED_AS = {"error": ("error_code", "error_message")}
_BY_NAME = {column.name: column for column in COLUMNS}
READ = [_BY_NAME[name] for field in Job._fields for name in _STORED_AS.get(field, (field,))]
JOB = ", ".join(column.name for column in READ)
"""The columns that `read_job` reads, in its order."""

_CODE = Job._fields.index("error")
_READERS = [
    (at, read)
    for at, field in enumerate(Job._fields)
    if field in _BY_NAME and (read := _BY_NAME[field].read) is not None
]
new_job = maker(Job)


def read_job(row: Sequence[Any]) -> Job:
    values = list(row)
    code, message = values[_CODE : _CODE + 2]
    values[_CODE : _CODE + 2] = [Error(Code(code), message or "") if code else None]
    for at, read in _READERS:
        values[at] = read(values[at])
    return new_job(tuple(values))


# --- writing -------------------------------------------------------------------------------------
def _written_from(kind: type[Common | Submission], *, rare: bool) -> list[Column]:
    written = [column for column in COLUMNS if (column.source or column.name) in kind._fields]
    return [column for column in written if column.rare == rare]


OWN, RARE_OWN = _written_from(Submission, rare=False), _written_from(Submission, rare=True)
SHARED, RARE_SHARED = _written_from(Common, rare=False), _written_from(Common, rare=True)
"""The columns a submit writes: `OWN` differ from job to job, `SHARED` are common to jobs of a
call."""


def values_of(
    kind: type[Common | Submission], columns: Sequence[Column]
) -> Callable[[Any], list[Any]]:
    """A function that makes these columns' values from a `Submission` or a `Common`."""
    pick = itemgetter(*(kind._fields.index(column.source or column.name) for column in columns))
    writers = [(at, column.write) for at, column in enumerate(columns) if column.write]

    def values(submitted: Common | Submission) -> list[Any]:
        found = list(pick(submitted))
        for at, write in writers:
            found[at] = write(found[at])
        return found

    return values
