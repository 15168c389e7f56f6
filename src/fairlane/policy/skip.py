"""The price of a paid skip."""

from __future__ import annotations

PRICES = ((10, 1), (30, 3), (60, 5), (120, 10))
MAX_PRICE_CREDITS = 15


def price(duration: float, prices: tuple[tuple[float, int], ...] = PRICES) -> int:
    """The price, in credits, of moving a job of this many seconds to the front."""
    for longest, cost in prices:
        if duration <= longest:
            return cost
    return MAX_PRICE_CREDITS
