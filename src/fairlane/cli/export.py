"""`fairlane jobs export`: jobs of the ledger as JSON lines. A server may run at the same time."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import BinaryIO, cast

import orjson
import typer

from fairlane.compose import past_of
from fairlane.config.settings import Settings
from fairlane.errors import FairlaneError
from fairlane.simulate.export import lines


def export(settings: Settings, path: Path, anonymous: bool) -> None:
    """Writes one line per job, newest first."""

    async def write(out: BinaryIO) -> int:
        written = 0
        async with past_of(settings) as past:
            async for line in lines(past, anonymous=anonymous):
                out.write(orjson.dumps(line) + b"\n")
                written += 1
        return written

    try:
        with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as out:
            written = asyncio.run(write(cast("BinaryIO", out)))
    except (FairlaneError, OSError) as error:
        typer.echo(f"fairlane: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"wrote {written:,} jobs to {path}; try: fairlane simulate {path}")
