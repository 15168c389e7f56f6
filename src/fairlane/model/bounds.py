"""How large a number in the settings may be. More than this is a slip of the pen, and would break
those who count slots, add to a time or set memory aside."""

from __future__ import annotations

from fairlane.errors import InvalidInput

MOST = 1_000_000
"""Limits, rates a minute, and whatever else is counted."""

MOST_WAITING = 100_000_000
"""Jobs in a line."""

LONGEST = 10 * 365 * 86_400
"""Seconds: ten years."""

LARGEST = 1 << 30
"""Bytes: 1 GiB."""


def demand(whose: str, most: int, **numbers: float) -> None:
    """Each of these is from 0 to `most`, or InvalidInput says which is not."""
    for name, number in numbers.items():
        if not 0 <= number <= most:  # also what is not a number
            raise InvalidInput(f"{whose}: {name} is 0 to {most:,}, not {number:,}")
