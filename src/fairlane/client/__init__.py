"""The client SDK for Python: submit jobs, wait for results, follow events, cancel."""

from fairlane.client.client import AsyncClient, Client
from fairlane.client.errors import ApiError, Unreachable

__all__ = ["ApiError", "AsyncClient", "Client", "Unreachable"]
