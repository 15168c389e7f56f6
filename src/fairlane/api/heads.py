"""What the head of a request may be, for all who look at one."""

from __future__ import annotations

import re

from fairlane.ids import Tokens

MOST_HEADERS = 16 << 10
IDS = Tokens()
REQUEST_ID = re.compile(rb"^[A-Za-z0-9_\-]{1,64}$")


def request_id(given: bytes) -> str:
    """The caller's own, if it can be one."""
    return given.decode() if given and REQUEST_ID.match(given) else IDS.new()


def without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
