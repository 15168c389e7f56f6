"""File results: the bytes that a step returned, and their media type. A job's result is JSON, so
the bytes are stored as base64."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from dataclasses import dataclass
from typing import Any

UNKNOWN_TYPE = "application/octet-stream"
FILE_TYPES = re.compile(
    r"(?:(?:audio|font|image|model|video)/[a-z0-9!#$&^_.+-]{1,100})|application/(?:pdf|zip)"
)
"""Media types that are certainly a file, and not JSON or text."""

ACTIVE_TYPES = frozenset({"image/svg+xml"})
"""Files that a browser may run scripts of."""

FIELDS = frozenset({"content_type", "bytes", "base64"})


@dataclass(frozen=True, slots=True)
class FileResult:
    """A task may return it instead of JSON. It is stored as
    `{"content_type": …, "bytes": <their number>, "base64": …}`."""

    data: bytes
    content_type: str = UNKNOWN_TYPE

    def json(self) -> dict[str, str | int]:
        encoded = b64encode(self.data).decode()
        return {"content_type": self.content_type, "bytes": len(self.data), "base64": encoded}

    @classmethod
    def read(cls, result: Any) -> FileResult | None:
        """The file in this result of a job; None if the result is any other JSON."""
        if not isinstance(result, dict) or result.keys() != FIELDS:
            return None
        content_type, encoded = result["content_type"], result["base64"]
        if not isinstance(content_type, str) or not isinstance(encoded, str):
            return None
        try:
            data = b64decode(encoded, validate=True)
        except (NotBase64, ValueError):
            return None
        return cls(data, content_type) if result["bytes"] == len(data) else None


def is_file(content_type: str) -> bool:
    return FILE_TYPES.fullmatch(content_type) is not None


def safe_type(content_type: str) -> str:
    """A media type that a browser may be told: that of bytes, unless it is a known kind of file
    without scripts."""
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type if is_file(media_type) and media_type not in ACTIVE_TYPES else UNKNOWN_TYPE
