"""Where a called service is reached, and what is told to it alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One service's address, one for each region that has its own, and headers (secrets among them)
    that go to these addresses and nowhere else. `retry_on` are answers that are worth another try
    though others of their kind are not (HTTP statuses). Sizes are bytes.
    `cancel_path`, below the address, is asked to end a call that was cut off: a 2xx answer says
    that it has ended."""

    url: str
    regions: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_response: int = 8 << 20
    retry_on: frozenset[int] = frozenset()
    cancel_path: str = ""

    def url_in(self, region: str | None) -> str:
        return self.regions.get(region or "", self.url)
