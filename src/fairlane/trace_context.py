"""W3C trace context: the trace id of a job, and the `traceparent` header of calls made for it."""

from __future__ import annotations

import re

from fairlane.ids import token

TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
TRACE_ID = re.compile(r"[0-9a-f]{32}")


def read_traceparent(header: str) -> str | None:
    """The trace id in a caller's `traceparent` header. Later versions may append fields."""
    found = TRACEPARENT.match(header)
    return found[1] if found else None


def trace_id(job: str, trace: str | None) -> str:
    """The trace id of a job: its caller's, or the digits of the job's id, which no other trace
    has."""
    return trace or job.replace("-", "")


def traceparent(trace: str) -> str | None:
    """The header for a call in this trace, with a new span. None if it is not a trace."""
    if TRACEPARENT.fullmatch(trace):
        return trace
    return f"00-{trace}-{token()[:16]}-01" if TRACE_ID.fullmatch(trace) else None
