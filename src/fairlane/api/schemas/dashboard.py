"""Requests and responses of the routes that the dashboard uses, with their examples."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from fairlane.api.schemas import examples
from fairlane.api.schemas.requests import Name, RequestModel, Text, User
from fairlane.api.schemas.timestamps import iso
from fairlane.model.key import Role
from fairlane.responses import EtaResponse, JobSummaryResponse, ProgressResponse

EXAMPLE_MILLISECONDS = 1_794_960_000_000


class SignInRequest(RequestModel):
    """An API key, for which the server sets a session cookie."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"key": "fl0123.c2VjcmV0"}]}
    )

    key: Annotated[str, Field(max_length=300)]


class SessionResponse(TypedDict):
    signed_in: bool
    role: Role | None
    tenant: str | None
    act_as: bool
    set_priority: bool
    version: str
    dev_mode: Annotated[bool, Field(description="No key was ever made: every caller has access.")]


# --- the timeline of a job -----------------------------------------------------------------------
SpanResponse = TypedDict(
    "SpanResponse",
    {
        "kind": Literal["waiting", "backoff", "unavailable", "running", "expected"],
        "step": Annotated[int, Field(description="Counts from 0.")],
        "service": str,
        "attempt": int,
        "from": Annotated[int, Field(description="Milliseconds since 1970.")],
        "to": Annotated[int | None, Field(description="Null while it lasts.")],
        "region": str | None,
        "outcome": str | None,
        "note": str | None,
    },
)


class SpanTotalsResponse(TypedDict):
    """Seconds of each kind."""

    running: float
    waiting: float
    backoff: float
    unavailable: float


class TimelineResponse(TypedDict):
    spans: list[SpanResponse]
    totals: SpanTotalsResponse


def _span(
    kind: Literal["waiting", "backoff", "unavailable", "running", "expected"],
    began: int,
    ended: int | None,
    outcome: str | None = None,
) -> SpanResponse:
    return {
        "kind": kind,
        "step": 0,
        "service": "image_gen",
        "attempt": 1,
        "from": EXAMPLE_MILLISECONDS + began,
        "to": None if ended is None else EXAMPLE_MILLISECONDS + ended,
        "region": None,
        "outcome": outcome,
        "note": None,
    }


TIMELINE: TimelineResponse = {
    "spans": [_span("waiting", 0, 1_500), _span("running", 1_500, 5_500, "completed")],
    "totals": {"running": 4.0, "waiting": 1.5, "backoff": 0.0, "unavailable": 0.0},
}


# --- the place of a job by a signed link ---------------------------------------------------------
class LinkRequest(RequestModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"expires_seconds": 86_400}]}
    )

    expires_seconds: Annotated[int, Field(ge=60, le=30 * 86_400)] = 7 * 86_400


class LinkResponse(TypedDict):
    url: Annotated[str, Field(description="A path of this server. It needs no key.")]
    expires_at: str


class AheadResponse(TypedDict):
    jobs: int
    seconds: float


class PlaceResponse(TypedDict):
    """What an end user may know of one job: nothing of other users."""

    status: str
    position: int | None
    eta: EtaResponse | None
    ahead: Annotated[AheadResponse | None, Field(description="The jobs before it, and their work.")]
    progress: ProgressResponse | None
    feature_name: str
    message: str
    result: NotRequired[Any]
    error: NotRequired[str]


LINK: LinkResponse = {
    "url": "/p/WyJqb2IiXQ.7c9d2e1f",
    "expires_at": iso(1_794_960_000_000_000),
}
PLACE: PlaceResponse = {
    "status": "queued",
    "position": 5,
    "eta": {"p50_seconds": 90.0, "p90_seconds": 240.0},
    "ahead": {"jobs": 4, "seconds": 180.0},
    "progress": None,
    "feature_name": "full_pipeline",
    "message": "4 jobs are before yours",
}

# --- bulk actions --------------------------------------------------------------------------------
BulkVerb = Literal["cancel", "replay", "resume", "purge"]


class BulkFilter(RequestModel):
    """As in the list of jobs."""

    user_id: User | None = None
    status: list[str] | None = None
    feature_name: Name | None = None
    tag: Text | None = None
    tier: Name | None = None
    service: Name | None = None
    region: Name | None = None
    model: Text | None = None


class BulkRequest(RequestModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [{"action": "cancel", "filter": {"service": "image_gen", "tier": "low"}}]
        },
    )

    action: BulkVerb
    filter: BulkFilter


class LeftOutResponse(TypedDict):
    reason: str
    count: int


class BulkPreviewResponse(TypedDict):
    bulk_id: str
    count: int
    exact: Annotated[bool, Field(description="False: there are more than were looked at.")]
    by_state: dict[str, int]
    sample: list[JobSummaryResponse]
    left_out: list[LeftOutResponse]
    expires_at: str


class BulkStatusResponse(TypedDict):
    bulk_id: str
    status: Annotated[
        Literal["previewed", "running", "done", "interrupted"],
        Field(
            description="`interrupted`: the server that ran it ended. The counts are those of its "
            "last report, at most a few seconds older. Preview the action again for the rest."
        ),
    ]
    count: int
    done: int
    changed: Annotated[int, Field(description="Left alone: they changed since the preview.")]
    skipped: Annotated[int, Field(description="Their state did not allow it.")]
    failed: int


BULK_PREVIEW: BulkPreviewResponse = {
    "bulk_id": "b7f3a9c2e1d04f58",
    "count": 2,
    "exact": True,
    "by_state": {"queued": 1, "running": 1},
    "sample": [examples.JOB_PAGE["jobs"][0]],
    "left_out": [{"reason": "already completed", "count": 40}],
    "expires_at": iso(1_794_960_300_000_000),
}
BULK_STATUS: BulkStatusResponse = {
    "bulk_id": "b7f3a9c2e1d04f58",
    "status": "running",
    "count": 1200,
    "done": 996,
    "changed": 3,
    "skipped": 1,
    "failed": 0,
}


# --- what-if -------------------------------------------------------------------------------------
class WhatIfRequest(RequestModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"service": "image_gen", "limit": 2}]},
    )

    service: Name
    limit: Annotated[int, Field(ge=1, le=10_000)]


class SimulatedWaitsResponse(TypedDict):
    p50: float
    p95: float
    share_in_target: float | None


class WhatIfResponse(TypedDict):
    """The waits of each tier, in seconds: with the present limit, and with the other one."""

    today: dict[str, SimulatedWaitsResponse]
    then: dict[str, SimulatedWaitsResponse]
    arrivals: int
    seconds_simulated: float
    seed: int
    note: str


WHAT_IF: WhatIfResponse = {
    "today": {"high": {"p50": 4.0, "p95": 31.0, "share_in_target": 0.94}},
    "then": {"high": {"p50": 0.2, "p95": 6.0, "share_in_target": 1.0}},
    "arrivals": 812,
    "seconds_simulated": 3600.0,
    "seed": 1,
    "note": "the jobs of the last hour",
}

# --- sessions ------------------------------------------------------------------------------------
SESSION: SessionResponse = {
    "signed_in": True,
    "role": Role.ADMIN,
    "tenant": "default",
    "act_as": True,
    "set_priority": True,
    "version": "0.1.0",
    "dev_mode": False,
}
