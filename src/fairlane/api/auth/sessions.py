"""Browser sessions: a signed cookie that stands for an API key, and a CSRF token that is bound to
it. A session ends with its key, after 12 hours, or when the user signs out."""

from __future__ import annotations

import hmac
import secrets
import time
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple

from fairlane.api.signing import Signer
from fairlane.ledger.api_keys import ApiKeys
from fairlane.units import SECOND

SESSION_COOKIE, CSRF_COOKIE = "fairlane_session", "fairlane_csrf"
SESSION_SECONDS = 12 * 3600
SESSION_CACHE_SECONDS = 2.0
MAX_CACHED_SESSIONS = 10_000
MAX_COOKIE_BYTES = 8 << 10


class Session(NamedTuple):
    id: str
    key: str
    until: int


class Sessions:
    """Issues, reads and ends sessions. That a session was ended is known in every process within
    two seconds."""

    def __init__(self, book: ApiKeys, signer: Signer) -> None:
        self._book, self._signer = book, signer
        self._looked: dict[str, tuple[float, bool]] = {}

    def begin(self, key: str, now: int) -> tuple[str, Session]:
        """The cookie and the session of this API key."""
        session = Session(secrets.token_hex(16), key, now + SESSION_SECONDS * SECOND)
        return self._signer.sign("session", list(session)), session

    async def find(self, cookie: str, now: int) -> Session | None:
        """The session of a cookie; None if it is not valid, or over."""
        found = self._signer.read("session", cookie)
        session = Session(*found) if found is not None else None
        return session if session is not None and await self.is_open(session, now) else None

    async def is_open(self, session: Session, now: int) -> bool:
        if now >= session.until:
            return False
        known = self._looked.get(session.id)
        if known is None or time.monotonic() - known[0] > SESSION_CACHE_SECONDS:
            if len(self._looked) >= MAX_CACHED_SESSIONS:
                self._looked.clear()
            known = (time.monotonic(), await self._book.redeemed(_ended(session)))
            self._looked[session.id] = known
        return not known[1]

    async def end(self, session: Session, now: int) -> None:
        await self._book.redeem(_ended(session), session.until, now)
        self._looked.pop(session.id, None)

    def csrf_token(self, session: Session) -> str:
        return self._signer.sign("csrf", session.id)

    def is_csrf_token(self, session: Session, given: bytes) -> bool:
        return hmac.compare_digest(self.csrf_token(session).encode(), given)


def _ended(session: Session) -> str:
    """The name under which the ledger notes that a session was ended."""
    return f"session {session.id}"


def cookies_of(header: bytes | None) -> dict[str, str]:
    """The cookies of a request by name; none if the header cannot be read."""
    if header is None or len(header) > MAX_COOKIE_BYTES:
        return {}
    parsed: SimpleCookie = SimpleCookie()
    try:
        parsed.load(header.decode("latin-1"))
    except CookieError:
        return {}
    return {name: each.value for name, each in parsed.items()}


def set_cookie(name: str, value: str, *, seconds: int, secure: bool, readable: bool) -> str:
    """A Set-Cookie header. Scripts of the page can read a `readable` cookie."""
    parts = [f"{name}={value}", "Path=/", f"Max-Age={seconds}", "SameSite=Strict"]
    if not readable:
        parts.append("HttpOnly")
    if secure:
        parts.append("Secure")
    return "; ".join(parts)
