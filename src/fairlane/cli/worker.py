"""`fairlane worker app:worker`: runs a worker that a Python module declares."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import typer
import uvloop

from fairlane.api.logs import log_to
from fairlane.cli.configure import BAD_SETTINGS
from fairlane.cli.wait_for_stores import in_one_line, started
from fairlane.compose import joined
from fairlane.worker import Worker
from fairlane.worker.signals import calling_on_signals


def load(name: str) -> Worker:
    """`app:worker` is the variable `worker` in app.py, in this folder or installed."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), attribute or "worker")
    except (ImportError, AttributeError) as error:
        typer.echo(f'cannot load "{name}": {error}; write module:variable', err=True)
        raise typer.Exit(BAD_SETTINGS) from None
    if not isinstance(found, Worker):
        typer.echo(f'"{name}" is not a fairlane.Worker; name a variable that holds one', err=True)
        raise typer.Exit(BAD_SETTINGS)
    return found


def run(
    name: str,
    url: str | None,
    key: str | None,
    database: str | None,
    redis: str | None,
    unsafe: bool,
    wait: float,
) -> None:
    """Runs until a signal. Then running tasks get their grace time."""
    worker = load(name)
    log_to()
    with in_one_line(), calling_on_signals(worker.drain):
        if database is not None and redis is not None:
            stores = started(lambda: joined(database, redis, unsafe=unsafe), wait, by_others=True)
            uvloop.run(worker.serve_with(stores))
        else:
            uvloop.run(worker.serve(url, key))
