"""The interface of a call: what a dispatcher does for one lease, over HTTP or through Celery."""

from __future__ import annotations

from typing import Protocol

from fairlane.dispatch.service_responses import Meaning
from fairlane.dispatch.streamed_response import Told
from fairlane.model.lease import Lease


class Call(Protocol):
    """`begun` turns true when the service may have received the call. From then on only the service
    can prove that the call has ended. `told` is progress that is not reported yet, `result` one
    that came before the end, `chunks` the number of chunks of streamed output. `lease` may get a
    later deadline while the call is made, and `lease_until` is the end of the lease as last
    renewed."""

    lease: Lease
    lease_until: int
    begun: bool
    told: Told | None
    result: Meaning | None
    chunks: int

    async def make(self) -> Meaning:
        """Makes the call and returns its meaning. It raises nothing but CancelledError."""

    def cut_off(self) -> Meaning | None:
        """The result of a call that has not ended, if it brought one."""

    @property
    def can_be_cancelled(self) -> bool:
        """Whether `is_over` can end a cut-off call."""

    async def is_over(self) -> bool:
        """Asks the service to end this cut-off call. Returns whether the call has certainly
        ended."""


class ServiceCaller(Protocol):
    """Makes the calls of one service."""

    def call(self, lease: Lease) -> Call: ...
