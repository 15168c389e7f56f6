"""Read-only connections with a time limit."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fairlane.errors import TookTooLong
from fairlane.ledger.messages import GIVEN_UP, QUERY_TIMEOUT_SECONDS

STEPS_PER_DEADLINE_CHECK = 50_000
"""SQLite instructions between two checks of the deadline: about a millisecond."""


@contextmanager
def brief(connection: sqlite3.Connection, seconds: float | None = None) -> Iterator[None]:
    """Interrupt the block's queries after a time limit, because all other readers wait for them.
    Raises TookTooLong."""
    until = time.monotonic() + (QUERY_TIMEOUT_SECONDS if seconds is None else seconds)
    connection.set_progress_handler(lambda: time.monotonic() >= until, STEPS_PER_DEADLINE_CHECK)
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise TookTooLong(GIVEN_UP) from None
        raise
    finally:
        connection.set_progress_handler(None, STEPS_PER_DEADLINE_CHECK)
