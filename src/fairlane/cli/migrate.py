"""`fairlane migrate`: creates or updates the schema of the ledger."""

from __future__ import annotations

import typer

from fairlane.cli.remote import Config
from fairlane.cli.store_options import DatabaseUrl, DataFolder, Unsafe, WaitForStores


def migrate(
    config: Config = None,
    data: DataFolder = None,
    database_url: DatabaseUrl = None,
    wait: WaitForStores = None,
    unsafe: Unsafe = False,
) -> None:
    """Create or update the schema of the ledger that the settings name."""
    import asyncio

    from fairlane.cli import configure
    from fairlane.cli.wait_for_stores import in_one_line, retry_until_ready
    from fairlane.compose import migrated

    flags: dict[tuple[str, ...], str | float | None] = {
        ("server", "data"): data,
        ("server", "database_url"): database_url,
        ("server", "wait_for_stores"): wait,
        ("server", "unsafe"): unsafe or None,
    }
    settings = configure.settings(config, flags=flags)
    with in_one_line():
        asyncio.run(retry_until_ready(lambda: migrated(settings), settings.server.wait_for_stores))
    typer.echo("the ledger is up to date")
