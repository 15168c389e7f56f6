"""A submit like the one before it on the same connection, recognized by its bytes. Whoever was
turned away and asks again is told so without reading the request once more: only what is the same
to the byte, but for values that stand alone in their lines, is taken for the same."""

from __future__ import annotations

import re
from typing import NamedTuple

LINE, END = b"\r\n", b"\r\n\r\n"
SIZE, OWN_ID = b"content-length", b"x-request-id"
CHANGING = frozenset({SIZE, OWN_ID, b"idempotency-key", b"traceparent"})
"""Headers that are another with every request, and say nothing about who sends it."""

VALUE = re.compile(rb"[A-Za-z0-9_\-:.]{1,255}")
LONGEST = 2 << 10
"""Bytes of a head that is kept as long as its connection."""


class Like(NamedTuple):
    """What such a request brings: its body, and the id it wants to have."""

    body: bytes
    request_id: bytes


class Place(NamedTuple):
    """A line whose value may be another: its header, and what stands before the value."""

    name: bytes
    start: bytes


class Pattern:
    """The head of a request that others have read."""

    __slots__ = ("_lines", "_places")

    def __init__(self, lines: list[bytes], places: dict[int, Place]) -> None:
        self._lines, self._places = lines, places

    @classmethod
    def of(cls, data: bytes) -> Pattern | None:
        """If these bytes are one whole request with a body of known size, and nothing else."""
        head = data.partition(END)[0]
        lines = head.split(LINE)
        text = b"".join(lines)
        places = {n: _place(line) for n, line in enumerate(lines) if _name(line) in CHANGING}
        names = [place.name for place in places.values()]
        found = cls(lines, places)
        plain = lines[0] and b"\r" not in text and b"\n" not in text
        once = SIZE in names and len(names) == len({*names})
        if plain and once and len(head) <= LONGEST and found.match(data) is not None:
            return found
        return None

    def match(self, data: bytes) -> Like | None:
        """What these bytes bring, if they are one whole request with this head."""
        head, _, body = data.partition(END)
        lines, own = head.split(LINE), b""
        if len(lines) != len(self._lines):
            return None
        for number, (name, start) in self._places.items():
            line = lines[number]
            value = line[len(start) :]
            if not line.startswith(start) or not VALUE.fullmatch(value):
                return None
            if name == SIZE and not (value.isdigit() and int(value) == len(body)):
                return None
            if name == OWN_ID:
                own = value
            lines[number] = self._lines[number]
        return Like(body, own) if lines == self._lines else None


def _name(line: bytes) -> bytes:
    return line.partition(b":")[0].lower()


def _place(line: bytes) -> Place:
    value = line.partition(b":")[2].lstrip(b" \t")
    return Place(_name(line), line[: len(line) - len(value)])
