"""Progress reports of a running step: a percentage and a short text."""

from __future__ import annotations

import math

MAX_TEXT_CHARACTERS = 200


def bounded(percent: float, text: str = "") -> tuple[float, str] | None:
    """The percentage between 0 and 100, and the text cut to 200 characters that JSON and both
    stores can hold. None if the percentage is no number."""
    value = float(percent)
    if math.isnan(value):
        return None
    readable = text[:MAX_TEXT_CHARACTERS].encode(errors="replace").decode().replace("\0", "\ufffd")
    return min(100.0, max(0.0, value)), readable
