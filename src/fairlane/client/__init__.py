"""Callers in Python: submit, wait, listen, cancel."""

from fairlane.client.client import AsyncClient, Client
from fairlane.client.connection import ApiError, Unreachable

__all__ = ["ApiError", "AsyncClient", "Client", "Unreachable"]
