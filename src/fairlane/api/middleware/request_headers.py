"""Request headers: one pass collects the headers that the middleware checks, and their size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from starlette.types import Scope

FORWARDED = b"x-forwarded-for"
WANTED = frozenset(
    {
        b"authorization",
        b"host",
        b"origin",
        b"x-request-id",
        FORWARDED,
        b"content-length",
        b"content-encoding",
        b"cookie",
        b"x-csrf-token",
        b"idempotency-key",
    }
)


class RequestHeaders(NamedTuple):
    """The headers that the middleware checks. `size` is the bytes of all headers. `repeated` holds
    the names that were sent more than once."""

    headers: Mapping[bytes, bytes]
    size: int
    repeated: frozenset[bytes]


def read_headers(scope: Scope) -> RequestHeaders:
    """Reads the headers in one pass."""
    found: dict[bytes, bytes] = {}
    size, repeated = 0, frozenset[bytes]()
    for name, value in scope["headers"]:
        size += len(name) + len(value)
        if name in WANTED:
            if name in found:
                repeated |= {name}
            before = found.get(name) if name == FORWARDED else None  # each proxy may add a line
            found[name] = value if before is None else b"%s, %s" % (before, value)
    return RequestHeaders(found, size, repeated)
