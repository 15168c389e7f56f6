"""A Redis connection of one thread: it sends a request now and reads the answer later."""

from __future__ import annotations

import threading
from typing import Any

import redis

from fairlane.celery.scripts import script


class ThreadConnection(threading.local):
    """A connection of this thread, outside of the pool, with at most one request on its way."""

    def __init__(self) -> None:
        self._client: Any = None
        self._connection: Any = None

    def send(self, client: Any, verb: str, *args: str) -> None:
        """Sends a script call. Another client, as in a forked process, gets a new connection."""
        if self._client is not client:
            self._client = client
            self._connection = client.connection_pool.make_connection()
        try:
            self._connection.send_command("EVALSHA", script(verb).digest, 1, *args)
        except BaseException:
            self._connection.disconnect()
            raise

    def receive(self) -> Any:
        """The answer. Raises NoScriptError if the server does not know the script."""
        try:
            return self._connection.read_response()
        except redis.exceptions.NoScriptError:
            raise
        except BaseException:
            self._connection.disconnect()  # an answer may still be on its way
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
        self._client = self._connection = None
