"""Upper bounds of numbers in the settings. A larger number is a typing error."""

from __future__ import annotations

from fairlane.errors import InvalidInput

MAX_COUNT = 1_000_000
"""Upper bound of limits, rates per minute and other counts."""

MAX_WAITING_JOBS = 100_000_000
"""Upper bound of waiting jobs."""

MIN_TIER_SHARE = 0.01
"""Lower bound of the share of a queue that the lowest tier may use. A share of 0 would be no
place."""

MAX_SECONDS = 10 * 365 * 86_400
"""Upper bound of times, in seconds: ten years."""

MAX_INTERVAL_SECONDS = 86_400
"""Upper bound of the time between two runs of periodic work, in seconds: a day."""

MAX_BYTES = 1 << 30
"""Upper bound of sizes, in bytes: 1 GiB."""


def demand(whose: str, most: int, **numbers: float) -> None:
    """Raises InvalidInput, with the name, for a number that is not from 0 to `most`."""
    for name, number in numbers.items():
        if not 0 <= number <= most:  # NaN fails this comparison, too
            raise InvalidInput(f"{whose}: {name} is 0 to {most:,}, not {number:,}")
