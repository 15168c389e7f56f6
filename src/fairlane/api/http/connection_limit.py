"""The connection limit: a connection beyond `server.connections` serves only exempt requests."""

from __future__ import annotations

import random

from fairlane.api.http.problem_details import DEFAULT_RETRY_AFTER_SECONDS, ProblemDetails

EXEMPT_PATHS = (b"/internal/", b"/livez", b"/readyz")


def is_exempt(method: bytes, url: bytes) -> bool:
    """Returns whether a request is never refused: cancels, worker requests and health checks."""
    return method == b"DELETE" or url.startswith(EXEMPT_PATHS)


def too_many_connections() -> ProblemDetails:
    wait = round(DEFAULT_RETRY_AFTER_SECONDS * random.uniform(0.8, 1.2))
    return ProblemDetails(
        503,
        "too_many_connections",
        "there are as many connections as there may be; close some, or try again later",
        headers={"Retry-After": str(wait)},
    )
