"""Tables and fields in the terminal. Control characters in users' texts are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import typer

PIPE_WIDTH = 400
"""Table width without a terminal, in characters: a program that reads it gets whole values."""

MAX_CELL_CHARACTERS = 100


def print_json(value: Any) -> None:
    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(box=SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    console.print(table)


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Prints one name and value per line, without values that are None."""
    shown = [(name, cell(value, longest=10_000)) for name, value in fields if value is not None]
    widest = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        typer.echo(f"{name:<{widest}}  {value}")


def cell(value: Any, longest: int = MAX_CELL_CHARACTERS) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "–"
    text = clean(str(value))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def clean(text: str) -> str:
    """The text with control characters escaped, so that the terminal does not obey them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def moment(value: str | None) -> str | None:
    """A timestamp of the server, to the second."""
    return None if value is None else f"{value[:19].replace('T', ' ')}Z"


def duration(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
