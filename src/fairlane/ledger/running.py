"""How a store runs a verb: its own functions, in its own transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

Write = Callable[[Callable[..., Any], Any], Awaitable[Any]]
"""Runs a verb with one item, durable when it answers what the verb found for it."""

Read = Callable[..., Awaitable[Any]]
"""What a query finds, with these arguments."""
