"""HTTP headers: the size limits, the request id, the content length and the host."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fairlane.ids import Tokens

MAX_HEADER_BYTES = 16 << 10
IDS = Tokens()
MAX_LENGTH_DIGITS = 19
"""The longest Content-Length that is accepted. A 64-bit integer has at most 19 digits."""

HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
REQUEST_ID = re.compile(rb"^[A-Za-z0-9_\-]{1,64}$")


def request_id(given: bytes) -> str:
    """Returns the caller's `X-Request-ID` if it is well-formed, else a new id."""
    return given.decode() if given and REQUEST_ID.match(given) else IDS.new()


def content_length(headers: Mapping[bytes, bytes]) -> int | None:
    """Returns the Content-Length; None if it is not a number."""
    given = headers.get(b"content-length", b"0")
    return int(given) if given.isdigit() and len(given) <= MAX_LENGTH_DIGITS else None


def without_port(host: str) -> str:
    """Returns the name in `name:port`; empty if the host is malformed."""
    found = HOST.fullmatch(host)
    return "" if found is None else found[1]
