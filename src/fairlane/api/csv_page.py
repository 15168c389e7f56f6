"""CSV (RFC 4180): a page of a listing as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.responses import PlainTextResponse

CSV = "text/csv"
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def csv_page(
    columns: Sequence[str], rows: Iterable[Mapping[str, Any]], following: str | None
) -> PlainTextResponse:
    """`following` is the cursor of the next page; the header `X-Next-Cursor` names it."""
    headers = {"X-Next-Cursor": following} if following is not None else None
    return PlainTextResponse(csv_text(columns, rows), 200, headers, CSV)


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A header line, then one line per row. A value that a row does not have is empty."""
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow([_cell(name) for name in columns])
    writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    return written.getvalue()


def _cell(value: Any) -> Any:
    """Escapes text that a spreadsheet would run as a formula (CSV injection). Numbers stay
    numbers."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value
