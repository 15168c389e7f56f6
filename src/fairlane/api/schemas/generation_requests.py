"""Request schema (Pydantic) of a generation: a job of the service or pipeline `generate`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from fairlane.api.schemas.requests import (
    TEXT,
    Address,
    Name,
    RequestModel,
    Text,
    User,
    key_on,
)
from fairlane.model.job import NewJob

GENERATE = "generate"
"""The service or pipeline that runs generations."""

OWN_FIELDS = ("prompt", "model", "duration")


class GenerationRequest(RequestModel):
    """A generation. Its worker gets `prompt`, `model`, `duration` and all `parameters`."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {"user_id": "ada", "model": "music", "prompt": "a heron at dawn", "duration": 30}
            ]
        },
    )

    prompt: Annotated[str, Field(pattern=TEXT)]
    model: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^|\u0000]*$")]
    duration: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = Field(
        description="Seconds to generate."
    )
    user_id: User | None = Field(default=None, description="The job's user. Needs `act_as`.")
    priority: Name | None = Field(default=None, description="A tier. Needs `set_priority`.")
    parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="Other inputs of the worker.",
        json_schema_extra={"propertyNames": {"not": {"enum": list(OWN_FIELDS)}}},
    )
    callback_url: Address | None = Field(default=None, description="Where the final state is sent.")
    tags: Annotated[list[Text], Field(max_length=20)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _names_each_input_once(self) -> GenerationRequest:
        for name in OWN_FIELDS:
            if name in self.parameters:
                raise ValueError(f"{name} is a field of its own, not one of the parameters")
        return self

    def new_job(self, key: str | None, trace: str | None) -> NewJob:
        own = {name: getattr(self, name) for name in OWN_FIELDS}
        return NewJob(
            GENERATE,
            {**self.parameters, **own},
            self.user_id,
            self.priority,
            self.model,
            self.duration,
            callback=self.callback_url,
            tags=tuple(self.tags),
            trace=trace,
            idempotency_key=key_on(GENERATE, key),
        )
