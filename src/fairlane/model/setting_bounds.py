"""Upper bounds of numbers in the settings. A larger number is a typing error."""

from __future__ import annotations

from fairlane.errors import InvalidInput

MAX_COUNT = 1_000_000
"""Limits, rates a minute, and whatever else is counted."""

MAX_WAITING_JOBS = 100_000_000
"""Jobs in a line."""

MAX_SECONDS = 10 * 365 * 86_400
"""Seconds: ten years."""

MAX_BYTES = 1 << 30
"""Bytes: 1 GiB."""


def demand(whose: str, most: int, **numbers: float) -> None:
    """Each of these is from 0 to `most`, or InvalidInput says which is not."""
    for name, number in numbers.items():
        if not 0 <= number <= most:  # also what is not a number
            raise InvalidInput(f"{whose}: {name} is 0 to {most:,}, not {number:,}")
