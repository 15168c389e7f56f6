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
        b"idempotency-key",
    }
)


class RequestHeaders(NamedTuple):
    """`repeated`: names that were sent twice. A proxy might have trusted the other copy."""

    headers: Mapping[bytes, bytes]
    size: int
    repeated: frozenset[bytes]


def read_headers(scope: Scope) -> RequestHeaders:
    """One pass over the headers."""
    found: dict[bytes, bytes] = {}
    size, repeated = 0, frozenset[bytes]()
    for name, value in scope["headers"]:
        size += len(name) + len(value)
        if name in WANTED:
            if name in found:
                repeated |= {name}
            before = found.get(name) if name == FORWARDED else None  # one line a proxy, perhaps
            found[name] = value if before is None else b"%s, %s" % (before, value)
    return RequestHeaders(found, size, repeated)
