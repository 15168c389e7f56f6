"""The request schema (Pydantic) of an inference: a job, and how long its caller waits for it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from fairlane.api.schemas.requests import Address, Name, RequestModel, Text, User, key_on
from fairlane.model.job import NewJob

DEFAULT_WAIT_SECONDS, MAX_WAIT_SECONDS = 300, 3_600
"""How long a caller of an inference waits."""


class InferenceRequest(RequestModel):
    """A job of one service, whose result the caller waits for on this connection."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "user_id": "ada",
                    "service": "fast_chat_llm",
                    "input_data": {"prompt": "Why do herons stand on one leg?"},
                    "timeout_seconds": 60,
                }
            ],
        },
    )

    service: Name = Field(description="A service or a pipeline.")
    input_data: Any = Field(default=None, description="Any JSON; every step sees it.")
    user_id: User | None = Field(default=None, description="The job's user. Needs `act_as`.")
    priority: Name | None = Field(default=None, description="A tier. Needs `set_priority`.")
    model: Annotated[str, Field(max_length=100, pattern=r"^[^|\u0000]*$")] = ""
    region: Name | None = Field(default=None, description="The only region it may run in.")
    duration: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = Field(
        default=0, description="Seconds of work requested."
    )
    timeout_seconds: Annotated[float, Field(gt=0, le=MAX_WAIT_SECONDS, allow_inf_nan=False)] = (
        Field(default=DEFAULT_WAIT_SECONDS, description="The longest wait; then 504.")
    )
    on_disconnect: Literal["cancel", "keep"] = Field(
        default="cancel", description="What becomes of the job when the client goes away."
    )
    callback_url: Address | None = Field(default=None, description="Where the final state is sent.")
    tags: Annotated[list[Text], Field(max_length=20)] = Field(default_factory=list)

    def new_job(self, key: str | None, trace: str | None) -> NewJob:
        return NewJob(
            self.service,
            self.input_data,
            self.user_id,
            self.priority,
            self.model,
            self.duration,
            () if self.region is None else (self.region,),
            callback=self.callback_url,
            tags=tuple(self.tags),
            trace=trace,
            idempotency_key=key_on("inference", key),
        )
