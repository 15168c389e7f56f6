"""The request matcher: recognises a submit whose head equals, byte for byte, one that was refused
before."""

from __future__ import annotations

import re
from typing import Generic, NamedTuple, TypeVar

Sender = TypeVar("Sender")

LINE, END = b"\r\n", b"\r\n\r\n"
SIZE, OWN_ID = b"content-length", b"x-request-id"
CHANGING = re.compile(
    rb"\r\n(content-length|x-request-id|idempotency-key|traceparent):[ \t]*"
    rb"([A-Za-z0-9_\-:.]{1,255})(?=\r\n|\Z)",
    re.IGNORECASE,
)
"""Headers that are another with every request, and say nothing about who sends it."""

MAX_HEAD_BYTES = 2 << 10
"""Bytes of a head that is remembered."""

MAX_REMEMBERED_HEADS = 1000
"""Heads that are."""


class MatchedRequest(NamedTuple, Generic[Sender]):
    """What such a request brings: who sends it, its body, and the id it wants to have."""

    sender: Sender
    body: bytes
    request_id: bytes


class _Known(NamedTuple, Generic[Sender]):
    """Who sends it, and which of the changing values are the size and the id."""

    sender: Sender
    size: int
    own_id: int | None


class RequestMatcher(Generic[Sender]):
    """Of requests that others have read."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], _Known[Sender]] = {}

    def learn(self, data: bytes, sender: Sender) -> None:
        """If these bytes are one whole request with a body of known size, and nothing else."""
        head, _, body = data.partition(END)
        lines = head.split(LINE)
        text = b"".join(lines)
        plain = all(lines) and b"\r" not in text and b"\n" not in text
        folded = any(line[:1] in b" \t" for line in lines)
        fixed, values = _parts(head)
        names = [name.lower() for name in fixed[1::2]]
        once = SIZE in names and len(names) == len({*names})
        if not plain or folded or not once or len(head) > MAX_HEAD_BYTES:
            return
        own_id = names.index(OWN_ID) if OWN_ID in names else None
        known = _Known(sender, names.index(SIZE), own_id)
        if _is_size(values[known.size], body):
            if len(self._known) >= MAX_REMEMBERED_HEADS:
                self._known.clear()
            self._known[fixed] = known

    def match(self, data: bytes) -> MatchedRequest[Sender] | None:
        """Who sends what, if these bytes are one whole request with a head that is known."""
        head, _, body = data.partition(END)
        fixed, values = _parts(head)
        known = self._known.get(fixed)
        if known is None:
            return None
        sender, size, own_id = known
        if not _is_size(values[size], body):
            return None
        return MatchedRequest(sender, body, b"" if own_id is None else values[own_id])


def _parts(head: bytes) -> tuple[tuple[bytes, ...], list[bytes]]:
    """What stays, with a name of what changes at every second place; and what changes."""
    parts = CHANGING.split(head)
    values = parts[2::3]
    del parts[2::3]
    return tuple(parts), values


def _is_size(value: bytes, body: bytes) -> bool:
    return value.isdigit() and int(value) == len(body)
