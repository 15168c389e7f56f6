"""Headers: their bounds, the request id, and the host."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fairlane.ids import Tokens

MAX_HEADER_BYTES = 16 << 10
IDS = Tokens()
MAX_LENGTH_DIGITS = 19
"""Of a Content-Length: more than any number of bytes has."""

HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
REQUEST_ID = re.compile(rb"^[A-Za-z0-9_\-]{1,64}$")


def request_id(given: bytes) -> str:
    """The caller's own, if it can be one."""
    return given.decode() if given and REQUEST_ID.match(given) else IDS.new()


def content_length(headers: Mapping[bytes, bytes]) -> int | None:
    """How many bytes a body has; None if that is no number."""
    given = headers.get(b"content-length", b"0")
    return int(given) if given.isdigit() and len(given) <= MAX_LENGTH_DIGITS else None


def without_port(host: str) -> str:
    """The name in `name:port`; empty if that is not what stands there."""
    found = HOST.fullmatch(host)
    return "" if found is None else found[1]
