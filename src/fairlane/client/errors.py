"""What a client raises when a request fails. It needs no HTTP library, so that an import of the
client is fast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlane.errors import FairlaneError


class Unreachable(FairlaneError):
    """No response: whether the request had an effect is not known."""

    code = "unreachable"


class ApiError(FairlaneError):
    """The server refused the request: `status`, `code` and `detail` of the response, `more` with
    the other fields."""

    def __init__(self, status: int, code: str, detail: str, more: Mapping[str, Any]) -> None:
        self.status, self.code, self.detail, self.more = status, code, detail, dict(more)
        super().__init__(f"{status} {code}: {detail}")
