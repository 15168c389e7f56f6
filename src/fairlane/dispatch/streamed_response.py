"""A streamed response of a service (NDJSON, JSON lines): lines with progress and output, then one
line with the result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import orjson

from fairlane.dispatch.service_responses import MAX_REASON_CHARACTERS, Bad, Meaning, result
from fairlane.model.attempt import Fault, fault_named
from fairlane.model.progress import bounded

NDJSON_TYPES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})


class Told(NamedTuple):
    """A progress line."""

    percent: float
    text: str


class Streamed(NamedTuple):
    """A line with a chunk of output, and maybe progress."""

    output: Any
    told: Told | None


async def lines(parts: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes | None]:
    """The lines of a body with their line breaks, which the last one may lack. None stands for a
    line of more than `max_bytes`. At most one line is held in memory."""
    held = bytearray()
    async for part in parts:
        *ends, rest = part.split(b"\n")
        for end in ends:
            held += end
            yield bytes(held) + b"\n" if len(held) <= max_bytes else None
            held.clear()
        held += rest
        del held[max_bytes + 1 :]
    if held:
        yield bytes(held) if len(held) <= max_bytes else None


def understand_line(service: str, line: bytes) -> Meaning | Told | Streamed | None:
    """A result, an error, output, or progress. None for any other line: services may send empty
    lines to keep the connection open."""
    if not line.strip():
        return None
    try:
        said: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return Bad(Fault.SERVICE_ERROR, f"{service} sent a line that is not JSON: {error}")
    if not isinstance(said, dict):
        return None
    if said.get("error") is not None:
        return _error(service, said["error"])
    if "data" in said:
        return result(service, line)
    told = _progress(said.get("progress"))
    return Streamed(said["output"], told) if said.get("output") is not None else told


def is_stream(status: int, headers: Mapping[str, str]) -> bool:
    return 200 <= status < 300 and media_type(headers) in NDJSON_TYPES


def media_type(headers: Mapping[str, str]) -> str:
    """The `Content-Type` header without its parameters, in lower case."""
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()


def ends_visibly(headers: Mapping[str, str]) -> bool:
    """Whether the response says where it ends. Otherwise its end looks like a lost connection."""
    chunked = headers.get("Transfer-Encoding", "").strip().lower().endswith("chunked")
    return chunked or "Content-Length" in headers


def _error(service: str, said: Any) -> Bad:
    """An error line means what the error of a worker means."""
    error = said if isinstance(said, dict) else {"message": said}
    message, code = error.get("message", ""), error.get("code", "")
    fault = fault_named(code if isinstance(code, str) else "", error.get("retriable") is not False)
    reason = f": {message[:MAX_REASON_CHARACTERS]}" if isinstance(message, str) and message else ""
    return Bad(fault, f"{service} reported an error{reason}")


def _progress(said: Any) -> Told | None:
    percent = said.get("percent") if isinstance(said, dict) else None
    if not isinstance(percent, int | float) or isinstance(percent, bool):
        return None
    text = said.get("text")
    told = bounded(percent, text if isinstance(text, str) else "")
    return None if told is None else Told(*told)
