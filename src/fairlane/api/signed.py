"""Things that leave and come back, signed: cursors of listings, tickets of browsers."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Any, NamedTuple

import orjson

from fairlane.api.problems import Problem

SIZE = 16
TICKET_SECONDS = 30


class Signer:
    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, purpose: str, value: Any) -> str:
        body = orjson.dumps(value)
        return _text(self._mark(purpose, body) + body)

    def read(self, purpose: str, text: str) -> Any:
        """What was signed for this purpose; None for anything else."""
        raw = _bytes(text)
        if raw is None or not hmac.compare_digest(raw[:SIZE], self._mark(purpose, raw[SIZE:])):
            return None
        return orjson.loads(raw[SIZE:])

    def _mark(self, purpose: str, body: bytes) -> bytes:
        return hmac.digest(self._secret, purpose.encode() + b"\0" + body, hashlib.sha256)[:SIZE]


class Ticket(NamedTuple):
    """Good once, for the events of one job, for half a minute."""

    id: str
    key: str
    job: str
    until: int


def issue(signer: Signer, key: str, job: str, now: int) -> tuple[str, Ticket]:
    ticket = Ticket(secrets.token_hex(16), key, job, now + TICKET_SECONDS * 1_000_000)
    return signer.sign("ticket", list(ticket)), ticket


def read_ticket(signer: Signer, text: str, now: int) -> Ticket | None:
    found = signer.read("ticket", text)
    ticket = Ticket(*found) if found is not None else None
    return ticket if ticket is not None and now < ticket.until else None


def cursor(signer: Signer, listing: str, after: str | None) -> str | None:
    """Where the next page of this very listing begins."""
    return None if after is None else signer.sign(f"cursor {listing}", after)


def read_cursor(signer: Signer, listing: str, text: str | None) -> str | None:
    if text is None:
        return None
    after = signer.read(f"cursor {listing}", text)
    if not isinstance(after, str):
        raise Problem(400, "invalid_cursor", "this cursor belongs to no page of this listing")
    return after


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
