"""Where a called service is reached, and what is told to it alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
FRAMING = frozenset(
    {"connection", "content-length", "expect", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that say where a request ends: only the client that sends it knows."""


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


def wrong_header(name: str, value: str) -> str | None:
    """Why this header cannot be sent. The value may be a secret, so it is not told."""
    if not HEADER_NAME.fullmatch(name):
        return "is no name of a header: use letters, digits and -"
    if name.lower() in FRAMING:
        return "is set for each request by itself: leave it out"
    if CONTROL_CHARACTER.search(value):
        return "the value holds a line break or another control character: leave it out"
    return None
