"""The HTTP endpoint of a called service: URLs, headers and secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
FRAMING = frozenset(
    {"connection", "content-length", "expect", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that frame a request: only the HTTP client may set them."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The URL of one service, the URLs of regions that have their own, and headers (also secrets)
    that are sent to these URLs only. `retry_on` lists HTTP statuses that are retried although
    others of their kind are not. Sizes are bytes. `cancel_path`, below the URL, asks the service to
    end a call that was cut off; a 2xx response says that the call has ended."""

    url: str
    regions: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_response: int = 8 << 20
    retry_on: frozenset[int] = frozenset()
    cancel_path: str = ""

    def url_in(self, region: str | None) -> str:
        return self.regions.get(region or "", self.url)


def wrong_header(name: str, value: str) -> str | None:
    """Why this header cannot be sent, or None. The value may be a secret, so the reason does not
    contain it."""
    if not HEADER_NAME.fullmatch(name):
        return "is no name of a header: use letters, digits and -"
    if name.lower() in FRAMING:
        return "is set for each request by itself: leave it out"
    if CONTROL_CHARACTER.search(value):
        return "the value holds a line break or another control character: leave it out"
    return None
