"""The price of a paid skip."""

from __future__ import annotations

from fairlane.model.credits import CreditSettings


def price(duration: float, credits: CreditSettings) -> int:
    """The price, in credits, of moving a job of this many seconds to the front."""
    for longest, cost in credits.skip_prices:
        if duration <= longest:
            return cost
    return credits.longer_skip_price
