"""The transaction runner's interface: how a store runs a ledger operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

Write = Callable[[Callable[..., Any], Any], Awaitable[Any]]
"""Runs a write with one item. When it returns that item's outcome, the write is durable."""

Read = Callable[..., Awaitable[Any]]
"""Runs a query with these arguments and returns its result."""
