"""Many texts as one parameter: the driver inspects every element of an array, but sends one text as
it is."""

from __future__ import annotations

from collections.abc import Sequence

SEPARATOR, NOTHING = "\x1f", "\x1e"
"""Between two texts, and in place of one that is missing. JSON, ids and tokens have neither."""


class Unpackable(Exception):
    """One of the texts has such a character in it."""


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
    """The texts again, as an array, in SQL."""
    return rf"string_to_array({value}, E'\x1f', E'\x1e')"
