"""API keys, in the form `id.secret`. Only a SHA-256 hash of the secret is stored."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import replace

from fairlane.api.auth.roles import DEVELOPER
from fairlane.errors import InvalidInput
from fairlane.model.catalog import checked_name
from fairlane.model.key import Key

ID = re.compile(r"[A-Za-z0-9_\-]{1,64}")
SECRET = re.compile(r"[A-Za-z0-9_\-]{32,200}")
UNKNOWN_KEY_HASH = "0" * 64


def new_key(key: Key) -> tuple[Key, str]:
    """Returns the key with a new id and hash, and the credential `id.secret`. The credential cannot
    be read again."""
    checked_name("tenant", key.tenant)
    secret = secrets.token_urlsafe(32)
    key = replace(key, id=f"fl{secrets.token_hex(8)}", hash=digest(secret))
    return key, f"{key.id}.{secret}"


def given_key(key: Key, credential: str) -> Key:
    """Returns the key for a credential that the operator chose."""
    found = split(credential)
    if found is None:
        raise InvalidInput(
            "a key looks like id.secret, the secret with 32 to 200 letters, digits, - and _: "
            "admin.$(openssl rand -hex 32)"
        )
    if found[0] == DEVELOPER.key:
        raise InvalidInput(f'"{found[0]}" is reserved; choose another id')
    return replace(key, id=found[0], hash=digest(found[1]))


def split(credential: str) -> tuple[str, str] | None:
    name, dot, secret = credential.partition(".")
    if not dot or not ID.fullmatch(name) or not SECRET.fullmatch(secret):
        return None
    return name, secret


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def opens(key: Key | None, secret: str) -> bool:
    """Checks the secret in constant time, whether the key exists or not."""
    expected = UNKNOWN_KEY_HASH if key is None else key.hash
    return hmac.compare_digest(expected, digest(secret)) and key is not None
