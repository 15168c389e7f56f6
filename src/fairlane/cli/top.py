"""`fairlane top`: services, slots, who is next and why, live in the terminal."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from fairlane.cli.remote import (
    NO_PERMISSION,
    REFUSED,
    UNAVAILABLE,
    ApiKey,
    Config,
    Url,
    server_url,
    stop,
)


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print frames as JSON, one per line.")
    ] = False,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
) -> None:
    """Watch the queue: slots, waiting jobs by tier, p95, who is next and why, alerts. Keys: q
    quits, p pauses, the arrows and tab select a service."""
    import asyncio

    from rich.console import Console

    from fairlane.top.app import NoFrame, Top, lines
    from fairlane.top.app import once as print_once
    from fairlane.top.feed import FeedRefused, feed

    address = server_url(url, config)
    console = Console()
    frames = feed(address, key)
    try:
        if once:
            asyncio.run(print_once(frames, as_json=as_json))
        elif as_json:
            asyncio.run(lines(frames))
        elif console.is_terminal and sys.stdin.isatty():
            asyncio.run(Top(frames, console).run())
        else:
            asyncio.run(print_once(frames, as_json=False))
    except FeedRefused as error:
        _refused(address, error.status)
    except NoFrame as error:
        stop(f"{address}: {error}; is fairlane serve running there?", UNAVAILABLE)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _refused(address: str, status: int) -> NoReturn:
    if status in (401, 403):
        stop(f"{address}: the key is missing or not valid; send one with --key", NO_PERMISSION)
    if status == 404:
        stop(f"{address} has no dashboard; its version of Fairlane is older", REFUSED)
    stop(f"{address}: refused with status {status}", REFUSED)
