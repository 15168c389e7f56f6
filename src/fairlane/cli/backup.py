"""The commands `fairlane backup` and `fairlane restore`: copies of the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlane.cli.remote import Config
from fairlane.cli.store_options import DatabaseUrl, DataFolder


def backup(
    file: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")],
    config: Config = None,
    data: DataFolder = None,
) -> None:
    """Copy the embedded ledger to a file. The server may run meanwhile."""
    from fairlane.cli import configure
    from fairlane.cli.wait_for_stores import in_one_line
    from fairlane.compose import backed_up

    settings = configure.settings(config, flags={("server", "data"): data})
    with in_one_line():
        made = backed_up(settings, file)
    typer.echo(f"wrote {file}: {made.jobs:,} jobs, {made.size / 1e6:,.1f} MB")


def restore(
    file: Annotated[
        Path | None, typer.Argument(help="The backup. None for a PostgreSQL that was restored.")
    ] = None,
    config: Config = None,
    data: DataFolder = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Restore a backup. Earlier leases are refused, so that late results cannot count. Stop all
    servers first."""
    import asyncio

    from fairlane.cli import configure
    from fairlane.cli.wait_for_stores import in_one_line
    from fairlane.compose import restored

    flags: dict[tuple[str, ...], str | None] = {
        ("server", "data"): data,
        ("server", "database_url"): database_url,
    }
    settings = configure.settings(config, flags=flags)
    with in_one_line():
        done = asyncio.run(restored(settings, file))
    if done.jobs is not None:
        typer.echo(f"restored {done.jobs:,} jobs from {file}")
    typer.echo(
        f"{done.leases:,} running jobs will be retried; results of earlier leases are refused"
    )
    if done.kept is not None:
        typer.echo(f"the ledger before is kept as {done.kept}")
        typer.echo(f"{done.missing:,} of its jobs are not in the backup")
