"""Webhook signatures (Standard Webhooks), and the rotation of their secrets."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Iterable

from fairlane.clock import seconds
from fairlane.engine import Engine

PREFIX = "whsec_"
SECRET_BYTES = 32
SECRET_OVERLAP_SECONDS = 86_400.0
"""After a rotation, webhooks are also signed with the old secret for this many seconds."""


def new_secret() -> str:
    return PREFIX + base64.b64encode(os.urandom(SECRET_BYTES)).decode()


def signed(webhook: str, timestamp: int, body: bytes, secrets: Iterable[str]) -> dict[str, str]:
    """Returns the three Standard Webhooks headers, with one signature for every secret."""
    content = f"{webhook}.{timestamp}.".encode() + body
    return {
        "webhook-id": webhook,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(_signature(content, secret) for secret in secrets),
    }


def _signature(content: bytes, secret: str) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    return f"v1,{base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()}"


async def secret_of(engine: Engine, tenant: str) -> str:
    """Returns the tenant's newest signing secret. The first call creates it."""
    return (await secrets_of(engine, tenant))[0]


async def secrets_of(engine: Engine, tenant: str) -> list[str]:
    """Returns the tenant's valid signing secrets, newest first. The first call creates one."""
    found = await engine.webhooks.secrets(tenant, engine.clock.now())
    if not found:
        await engine.webhooks.first_secret(tenant, new_secret(), engine.clock.now())
        found = await engine.webhooks.secrets(tenant, engine.clock.now())
    return found


async def rotate_secret(
    engine: Engine, tenant: str, overlap: float = SECRET_OVERLAP_SECONDS, actor: str = "local"
) -> str:
    """Creates a new signing secret. The old one stays valid for `overlap` seconds."""
    now, secret = engine.clock.now(), new_secret()
    until = now + seconds(overlap)
    await engine.webhooks.new_secret(tenant, secret, now, until, actor)
    return secret
