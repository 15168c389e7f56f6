"""Text packing: many texts as one parameter. The driver inspects every element of an array, but
sends one text as it is."""

from __future__ import annotations

from collections.abc import Sequence

SEPARATOR, NOTHING = "\x1f", "\x1e"
"""The separator of two texts, and the mark for a missing one. JSON, ids and tokens contain
neither."""


class Unpackable(Exception):
    """One of the texts contains such a character."""


def packed(texts: Sequence[str | None]) -> str:
    missing = texts.count(None)
    together = SEPARATOR.join([NOTHING if text is None else text for text in texts])
    if (
        not together
        or together.count(SEPARATOR) != len(texts) - 1
        or together.count(NOTHING) != missing
    ):
        raise Unpackable
    return together


def unpacked(value: str) -> str:
    """SQL that unpacks the texts into an array."""
    return rf"string_to_array({value}, E'\x1f', E'\x1e')"
