"""Named parameters: SQL with `:name`, translated once into PostgreSQL's `$1`, `$2`, …"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

PARAMETER = re.compile(r"(?<![:']):([a-z_]+)")
"""A colon before a name. Two colons are a cast, and a colon after a quote is text."""


class Statement:
    """A prepared statement. Called with its parameters, it returns what a connection takes: the SQL
    and its arguments in order, as in `tx.fetch(*FIND(job=job, tenant=tenant))`."""

    def __init__(self, sql: str) -> None:
        self.names = tuple(dict.fromkeys(PARAMETER.findall(sql)))
        numbers = {name: f"${n}" for n, name in enumerate(self.names, 1)}
        self.sql = PARAMETER.sub(lambda found: numbers[found[1]], sql)

    def __call__(self, **values: Any) -> tuple[Any, ...]:
        if len(values) != len(self.names):
            wrong = sorted(values.keys() ^ set(self.names))
            raise TypeError(f"missing or unknown parameters: {', '.join(wrong)}")
        return (self.sql, *[values[name] for name in self.names])

    def rows(self, rows: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        """Call the statement with rows for the `table` that has all its parameters."""
        columns = tuple(zip(*rows, strict=True))
        if len(columns) != len(self.names):
            raise TypeError(f"a row has {len(columns)} values for {len(self.names)} columns")
        return (self.sql, *columns)


def table(columns: str, name: str = "v") -> str:
    """A table made of parameters: `table("id text, rev bigint")` is `unnest(:id::text[],
    :rev::bigint[]) v (id, rev)`."""
    pairs = [column.split() for column in columns.split(", ")]
    arrays = ", ".join(f":{column}::{kind}[]" for column, kind in pairs)
    return f"unnest({arrays}) {name} ({', '.join(column_names(columns))})"


def column_names(columns: str) -> tuple[str, ...]:
    return tuple(column.split()[0] for column in columns.split(", "))
