"""Imports on demand: a client loads no engine, and the command line loads no server."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fairlane


def loaded_by(statement: str) -> set[str]:
    """Returns the modules that a new interpreter has loaded after the statement."""
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.splitlines())


@pytest.mark.parametrize("name", ["AsyncClient", "Client", "JobRequest", "slot"])
def test_a_client_loads_neither_engine_nor_server(name: str) -> None:
    loaded = loaded_by(f"from fairlane import {name}")
    server = {"fairlane.engine", "fairlane.ledger", "fairlane.index", "fairlane.api", "fastapi"}
    assert not loaded & {*server, "pydantic", "uvicorn", "asyncpg", "redis", "sqlite3"}
    assert not loaded & {"aiohttp", "anyio.from_thread"}, "a client imports them when it is made"


def test_the_command_line_loads_no_server_before_a_command_runs() -> None:
    loaded = loaded_by("import fairlane.cli")
    assert not loaded & {"fairlane.engine", "fairlane.api", "fastapi", "aiohttp", "asyncio", "rich"}


def test_every_public_name_is_found() -> None:
    assert set(fairlane.__all__) == set(fairlane.MODULES)
    for name in fairlane.__all__:
        assert getattr(fairlane, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Clinet'"):
        fairlane.__getattr__("Clinet")
