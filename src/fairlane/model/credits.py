"""Credits: the prices of paid skips, and the name of their currency."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fairlane.errors import InvalidInput
from fairlane.model.setting_bounds import MAX_COUNT, MAX_SECONDS

CURRENCY = re.compile(r"[A-Za-z0-9_.\-]{1,20}")


@dataclass(frozen=True, slots=True)
class CreditSettings:
    """What a skip costs. Each of `skip_prices` is (the longest duration in seconds, its price);
    `longer_skip_price` is the price of every job that is longer than all of them."""

    currency: str = "aura"
    skip_prices: tuple[tuple[float, int], ...] = ((10, 1), (30, 3), (60, 5), (120, 10))
    longer_skip_price: int = 15

    def __post_init__(self) -> None:
        if not CURRENCY.fullmatch(self.currency):
            raise InvalidInput(
                'credits: a currency is 1 to 20 of letters, digits, "_", "-" and "."'
            )
        for price in (*(price for _, price in self.skip_prices), self.longer_skip_price):
            if not 1 <= price <= MAX_COUNT:
                raise InvalidInput(f"credits: a price is 1 to {MAX_COUNT:,}, not {price:,}")
        shorter: float = 0
        for duration, _ in self.skip_prices:
            if not shorter < duration <= MAX_SECONDS:  # NaN fails this comparison, too
                raise InvalidInput(
                    "credits: the durations of skip_prices rise, from above 0 to at most "
                    f"{MAX_SECONDS:,} s; {duration:,} follows {shorter:,}"
                )
            shorter = duration
