"""A request as bytes, for what no client would send."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def exchange(port: int, head: bytes, body: bytes = b"", *, patience: float = 10) -> Answer:
    """Send this and read one answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(patience):
            writer.write(head + b"\r\n\r\n" + body)
            return await answer(reader)
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> Answer:
    """The next one."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = [line.split(": ", 1) for line in lines if line]
    headers = {name.lower(): value for name, value in pairs}
    rest = await reader.readexactly(int(headers.get("content-length", 0)))
    return Answer(int(first.split()[1]), headers, rest)
