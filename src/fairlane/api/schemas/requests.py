"""Request schemas (Pydantic) of jobs and administration. Unknown fields and wrong types are
refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic.config import JsonDict

from fairlane.api.schemas.timestamps import microseconds
from fairlane.engine.submit_terms import MAX_PAUSE, MAX_PAUSES, MAX_RETRIES
from fairlane.model.fanout import OnCellFailure
from fairlane.model.job import NewJob
from fairlane.units import SECOND

NAME = r"^[A-Za-z0-9_.\-]{1,100}$"
TEXT = r"^[^\u0000]*$"
IDEMPOTENCY_KEY = r"^[A-Za-z0-9_\-:.]{1,255}$"
MAX_SECONDS = 10 * 365 * 86_400
MAX_BATCH_JOBS = 1_000
EXAMPLE_ID = "018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f"
EXAMPLE_LEASE = "9f3c1b7e5d2a48609c8e7f6a5b4c3d2e"


def key_on(route: str, key: str | None) -> str | None:
    """Returns the idempotency key in the scope of a route. The space prevents a collision: no key
    that a client sends contains one."""
    return None if key is None else f"{key} {route}"


def _whole_text(value: str) -> str:
    if "\0" in value:
        raise ValueError("text without U+0000 is needed")
    return value


def _time(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("a time such as 2026-01-31T12:00:00Z is needed")  # noqa: TRY004
    return microseconds(value)


Name = Annotated[str, Field(pattern=NAME)]
Text = Annotated[
    str,
    AfterValidator(_whole_text),
    Field(max_length=200, json_schema_extra={"pattern": TEXT}),
]
User = Annotated[
    str,
    AfterValidator(_whole_text),
    Field(min_length=1, max_length=200, json_schema_extra={"pattern": TEXT}),
]
Address = Annotated[str, Field(max_length=2000, pattern=r"^https?://[^\s\u0000]+$")]
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
Time = Annotated[
    int, BeforeValidator(_time), WithJsonSchema({"type": "string", "format": "date-time"})
]


def whole_number(value: Any) -> Any:
    """Converts 2.0 to 2: JSON does not distinguish them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _only(one: str, other: str) -> JsonDict:
    return {
        "required": [one],
        "properties": {one: {"type": "string"}, other: {"type": "null"}},
    }


Retries = Annotated[int, Field(ge=0, le=MAX_RETRIES), BeforeValidator(whole_number)]
Pause = Annotated[float, Field(ge=0, le=MAX_PAUSE / SECOND, allow_inf_nan=False)]
Backoff = Annotated[list[Pause], Field(min_length=1, max_length=MAX_PAUSES)]
RETRIES = "Retries after the first attempt; null = the worker's, the service's, or the tier's."
BACKOFF = "Seconds before each retry; the last one repeats. Jitter shortens each by up to 20 %."


def pauses(backoff: list[float] | None) -> tuple[int, ...]:
    """Converts the backoff from seconds to microseconds."""
    return tuple(round(pause * SECOND) for pause in backoff or ())


Limit = Annotated[int, Field(ge=0, le=1_000_000), BeforeValidator(whole_number)]
Amount = Annotated[int, Field(ge=-1_000_000_000, le=1_000_000_000), BeforeValidator(whole_number)]


MAX_NAME_CHARACTERS = 200
SHORT = {"items": {"type": "string", "maxLength": MAX_NAME_CHARACTERS}}


def _short_names(matrix: dict[str, list[str]]) -> dict[str, list[str]]:
    for axis in ("model", "region"):
        if any(len(value) > MAX_NAME_CHARACTERS for value in matrix.get(axis, ())):
            raise ValueError(f"a {axis} has at most {MAX_NAME_CHARACTERS} characters")
    return matrix


Value = Annotated[
    str,
    AfterValidator(_whole_text),
    Field(max_length=10_000, json_schema_extra={"pattern": TEXT}),
]
Matrix = Annotated[
    dict[Name, Annotated[list[Value], Field(min_length=1, max_length=1000)]],
    Field(max_length=8),
    AfterValidator(_short_names),
    Field(json_schema_extra={"properties": {"model": SHORT, "region": SHORT}}),
]


class RequestModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class JobRequestBody(RequestModel):
    """A job: a pipeline (`feature_name`) or one `service`, with its input and options."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "oneOf": [_only("feature_name", "service"), _only("service", "feature_name")],
            "examples": [
                {
                    "user_id": "ada",
                    "feature_name": "full_pipeline",
                    "input_data": {"prompt": "a heron at dawn"},
                    "tags": ["launch"],
                }
            ],
        },
    )

    feature_name: Name | None = Field(default=None, description="A pipeline, or a service.")
    service: Name | None = Field(default=None, description="A service, for a job of one step.")
    input_data: Any = Field(default=None, description="Any JSON; every step sees it.")
    user_id: User | None = Field(default=None, description="The job's user. Needs `act_as`.")
    priority: Name | None = Field(default=None, description="A tier. Needs `set_priority`.")
    model: Annotated[str, Field(max_length=100, pattern=r"^[^|\u0000]*$")] = ""
    duration: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = Field(
        default=0, description="Seconds of work requested."
    )
    regions: Annotated[list[Name], Field(max_length=20)] = Field(default_factory=list)
    matrix: Matrix | None = Field(default=None, description="One execution for every combination.")
    on_cell_failure: Literal["continue", "stop"] = Field(
        default="continue", description="`stop`: a failed execution ends the others."
    )
    run_at: Time | None = Field(default=None, description="Starts no earlier than this time.")
    max_wait_seconds: Seconds = Field(default=0, description="Longest step wait; 0 = no limit.")
    timeout_seconds: Seconds = Field(
        default=0, description="Of one attempt; 0 = the worker's, the service's, or the tier's."
    )
    max_retries: Retries | None = Field(default=None, description=RETRIES)
    backoff: Backoff | None = Field(default=None, description=BACKOFF)
    required_capabilities: Annotated[list[Name], Field(max_length=50)] = Field(default_factory=list)
    callback_url: Address | None = Field(default=None, description="Where the final state is sent.")
    tags: Annotated[list[Text], Field(max_length=20)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _names_one_thing(self) -> JobRequestBody:
        if (self.feature_name is None) == (self.service is None):
            raise ValueError("name one of feature_name and service")
        return self

    def new_job(self, key: str | None, trace: str | None) -> NewJob:
        return NewJob(
            self.feature_name or self.service or "",
            self.input_data,
            self.user_id,
            self.priority,
            self.model,
            self.duration,
            tuple(self.regions),
            tuple(sorted(set(self.required_capabilities))),
            {axis: tuple(values) for axis, values in self.matrix.items()}
            if self.matrix is not None
            else None,
            self.run_at,
            round(self.timeout_seconds * SECOND),
            round(self.max_wait_seconds * SECOND),
            self.callback_url,
            tuple(self.tags),
            trace,
            key,
            self.max_retries,
            pauses(self.backoff),
            OnCellFailure(self.on_cell_failure),
        )


def _or_anything(schema: JsonDict) -> None:
    schema["items"] = {"anyOf": [schema["items"], {"description": "Invalid; refused."}]}


class BatchRequest(RequestModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "jobs": [
                        {"feature_name": "full_pipeline", "input_data": {"prompt": "a heron"}},
                        {"feature_name": "full_pipeline", "input_data": {"prompt": "a crane"}},
                    ]
                }
            ]
        }
    )

    jobs: Annotated[list[JobRequestBody], Field(min_length=1, max_length=MAX_BATCH_JOBS)] = Field(
        json_schema_extra=_or_anything
    )


class UncheckedBatchRequest(RequestModel):
    """A batch whose jobs are validated one by one."""

    jobs: Annotated[list[Any], Field(min_length=1, max_length=MAX_BATCH_JOBS)]


class SkipRequestBody(RequestModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"max_price": 5}]})

    max_price: Limit | None = None


class ServiceRequest(RequestModel):
    """New limits of a service. Fields that are absent or null do not change."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"limit": 2, "paused": False}]})

    limit: Limit | None = None
    rate: Limit | None = Field(default=None, description="Starts per minute; 0 = no limit.")
    waiting: Limit | None = Field(default=None, description="Waiting jobs; 0 = no limit.")
    paused: bool | None = None


class ProviderRequest(RequestModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"limit": 4, "rate": 60}]})

    limit: Limit | None = None
    rate: Limit | None = None


class UserRequest(RequestModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"priority": "high"}]})

    priority: Name


class CreditsRequest(RequestModel):
    """A change of a balance. `operation_key` is its idempotency key: the same key again changes
    nothing, and with another amount it is a conflict."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"amount": 20, "operation_key": "invoice-7", "note": "bought"}]
        }
    )

    amount: Amount
    operation_key: Annotated[str, Field(pattern=IDEMPOTENCY_KEY)]
    note: Text = ""


class KeyRequest(RequestModel):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "web shop", "role": "client", "tenant": "shop"}]}
    )

    role: Literal["client", "read", "worker", "admin"]
    tenant: Name = "default"
    name: Text = ""
    act_as: bool | None = Field(default=None, description="Null = true for clients and admins.")
    set_priority: bool = False
    expires_at: Time | None = None


class DeadLetterFilter(RequestModel):
    user_id: User | None = None
    feature_name: Name | None = None
    tag: Text | None = None
    service: Name | None = Field(default=None, description="The service of the step that failed.")
    region: Name | None = Field(default=None, description="Where the last attempt ran.")
    error_code: Text | None = Field(
        default=None,
        description="The job's error code (upper case), or the fault of its last attempt.",
    )
    died_from: Time | None = Field(default=None, description="Died at this time or later.")
    died_to: Time | None = Field(default=None, description="Died before this time.")


class DeadLetterRequest(RequestModel):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"filter": {"feature_name": "full_pipeline"}}]}
    )

    filter: DeadLetterFilter = DeadLetterFilter()


class ReplayRequest(DeadLetterRequest):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"filter": {"region": "US"}, "preview": True}]}
    )

    preview: bool = Field(default=False, description="Change nothing; say what would run.")
