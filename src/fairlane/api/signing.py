"""Signed values (HMAC-SHA256): the server issues them and trusts them when they come back."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Any

import orjson

SIGNATURE_BYTES = 16


class Signer:
    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, purpose: str, value: Any) -> str:
        body = orjson.dumps(value)
        return _text(self._mark(purpose, body) + body)

    def read(self, purpose: str, text: str) -> Any:
        """Returns the value if its signature is valid for this purpose, else None."""
        raw = _bytes(text)
        if raw is None or not hmac.compare_digest(
            raw[:SIGNATURE_BYTES], self._mark(purpose, raw[SIGNATURE_BYTES:])
        ):
            return None
        return orjson.loads(raw[SIGNATURE_BYTES:])

    def _mark(self, purpose: str, body: bytes) -> bytes:
        return hmac.digest(self._secret, purpose.encode() + b"\0" + body, hashlib.sha256)[
            :SIGNATURE_BYTES
        ]


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
