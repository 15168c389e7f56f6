"""Size limits that hold before the body is read: headers, content encoding, content length."""

from __future__ import annotations

from fairlane.api.http.body_limits import too_large
from fairlane.api.http.headers import MAX_HEADER_BYTES, content_length
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.middleware.request_headers import RequestHeaders


def check_size(seen: RequestHeaders, most: int) -> None:
    close = {"Connection": "close"}
    if seen.size > MAX_HEADER_BYTES:
        raise ProblemDetails(431, "headers_too_large", "at most 16 KiB of headers", headers=close)
    if seen.headers.get(b"content-encoding", b"identity") != b"identity":
        raise ProblemDetails(
            415, "encoded_body", "send the body as it is, not encoded", headers=close
        )
    if (content_length(seen.headers) or 0) > most:
        raise too_large(most)
