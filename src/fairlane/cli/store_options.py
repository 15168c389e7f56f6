"""Options of the commands that open the stores: PostgreSQL, Redis or the embedded ledger."""

from __future__ import annotations

from typing import Annotated

import typer

Unsafe = Annotated[
    bool,
    typer.Option(
        "--unsafe", help="Accept a database that may lose committed jobs, such as fsync = off."
    ),
]


WaitForStores = Annotated[
    float | None,
    typer.Option(
        "--wait-for-stores",
        min=0,
        help="Seconds to wait for PostgreSQL and Redis at the start (default: 60).",
    ),
]
DataFolder = Annotated[str | None, typer.Option(help="The folder of the embedded ledger.")]
DatabaseUrl = Annotated[str | None, typer.Option(help="PostgreSQL URL of the ledger.")]
