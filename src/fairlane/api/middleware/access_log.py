"""The access log: one line for each request, if `server.access_log` is on."""

from __future__ import annotations

import logging

from fairlane.api.middleware.response_headers import ReplyGuard

log = logging.getLogger("fairlane.api")


def log_request(reply: ReplyGuard, took: float) -> None:
    """Logs one request without its query string, which may hold a ticket."""
    identity = reply.scope.get("identity")
    extra = {
        "request_id": reply.request_id,
        "method": reply.scope.get("method", "WS"),
        "path": reply.scope["path"],
        "status": reply.status,
        "milliseconds": round(took * 1000, 1),
        "key": identity.key if identity is not None else None,
    }
    log.info("request", extra=extra)
