"""Request schemas (Pydantic) of tasks and caller-held slots."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from fairlane.api.schemas.requests import (
    BACKOFF,
    EXAMPLE_LEASE,
    IDEMPOTENCY_KEY,
    RETRIES,
    Address,
    Backoff,
    Name,
    RequestModel,
    Retries,
    Seconds,
    Text,
    Time,
    User,
    key_on,
    pauses,
)
from fairlane.model.job import NewJob
from fairlane.units import SECOND
from fairlane.worker_protocol.long_poll import DEFAULT_WAIT_SECONDS, MAX_WAIT_SECONDS

Wait = Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS, allow_inf_nan=False)]
Id = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_\-]+$")]
Names = Annotated[list[Name], Field(max_length=50)]


class TaskRequest(RequestModel):
    """A task for a worker that offers its type and its required capabilities."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "task_type": "resize",
                    "priority": "high",
                    "parameters": {"file": "heron.png", "width": 640},
                    "required_capabilities": ["gpu"],
                    "timeout_seconds": 600,
                }
            ]
        },
    )

    task_type: Name
    parameters: Any = None
    priority: Name | None = Field(default=None, description="A tier. Needs `set_priority`.")
    required_capabilities: Names = Field(default_factory=list)
    timeout_seconds: Seconds = Field(
        default=0, description="Of one attempt; 0 = the worker's, the service's, or the tier's."
    )
    max_retries: Retries | None = Field(default=None, description=RETRIES)
    backoff: Backoff | None = Field(default=None, description=BACKOFF)
    idempotency_key: Annotated[str, Field(pattern=IDEMPOTENCY_KEY)] | None = None
    user_id: User | None = Field(default=None, description="The job's user. Needs `act_as`.")
    model: Annotated[str, Field(max_length=100, pattern=r"^[^|\u0000]*$")] = ""
    run_at: Time | None = Field(default=None, description="Starts no earlier than this time.")
    max_wait_seconds: Seconds = Field(default=0, description="Longest wait; 0 = no limit.")
    callback_url: Address | None = Field(default=None, description="Where the final state is sent.")
    tags: Annotated[list[Text], Field(max_length=20)] = Field(default_factory=list)

    def new_job(self, key: str | None, trace: str | None) -> NewJob:
        return NewJob(
            self.task_type,
            self.parameters,
            self.user_id,
            self.priority,
            self.model,
            capabilities=tuple(sorted(set(self.required_capabilities))),
            run_at=self.run_at,
            timeout=round(self.timeout_seconds * SECOND),
            max_wait=round(self.max_wait_seconds * SECOND),
            callback=self.callback_url,
            tags=tuple(self.tags),
            trace=trace,
            idempotency_key=key_on("tasks", self.idempotency_key or key),
            max_retries=self.max_retries,
            backoff=pauses(self.backoff),
        )


class SlotRequest(RequestModel):
    """A slot of a service whose executor is `caller`. With `slot_id` the wait for it continues."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"service": "image_gen"}]})

    service: Name
    user_id: User | None = Field(default=None, description="The job's user. Needs `act_as`.")
    priority: Name | None = Field(default=None, description="A tier. Needs `set_priority`.")
    model: Annotated[str, Field(max_length=100, pattern=r"^[^|\u0000]*$")] = ""
    wait_seconds: Wait = DEFAULT_WAIT_SECONDS
    slot_id: Id | None = None
    callback_url: None = None

    def new_job(self, key: str | None, trace: str | None) -> NewJob:
        return NewJob(
            self.service,
            None,
            self.user_id,
            self.priority,
            self.model,
            trace=trace,
            idempotency_key=key_on("slots", key),
        )


class SlotLeaseRequest(RequestModel):
    """The lease token, which proves that the caller holds the slot."""

    model_config = ConfigDict(
        extra="ignore", json_schema_extra={"examples": [{"lease": EXAMPLE_LEASE}]}
    )

    lease: Id
