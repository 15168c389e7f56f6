"""HTTP requests to a Fairlane server, and its errors as exceptions."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from fairlane.client.errors import ApiError, Unreachable
from fairlane.errors import SetupError
from fairlane.json_text import json_bytes

URL, KEY = "FAIRLANE_URL", "FAIRLANE_KEY"
HERE = "http://127.0.0.1:8000"


def checked_url(url: str) -> str:
    """The URL without a final slash. Raises SetupError if no request can go there."""
    text = url.strip().rstrip("/")
    if not _is_address(text):
        raise SetupError(
            f'"{url[:200]}" is not the address of a Fairlane server; '
            f"write it like {HERE} or https://queue.example"
        )
    return text


def _is_address(text: str) -> bool:
    if any(letter.isspace() for letter in text):
        return False
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, or half an IPv6 address
        return False
    return known and not parts.query and not parts.fragment


class ApiConnection:
    """An HTTP session that is opened at its first use, on the loop of that call."""

    def __init__(self, url: str | None = None, key: str | None = None) -> None:
        self.url = checked_url(url or os.environ.get(URL) or HERE)
        credential = key or os.environ.get(KEY)
        self._headers = {"Authorization": f"Bearer {credential}"} if credential else {}
        self._session: aiohttp.ClientSession | None = None

    async def call(
        self,
        method: str,
        path: str,
        sent: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        patience: float = 30,
    ) -> Any:
        """The parsed response. Raises an error that says why there is none."""
        timeout = aiohttp.ClientTimeout(total=patience)
        try:
            async with self._open().request(
                method,
                self.url + path,
                data=None if sent is None else json_bytes("request", sent),
                headers=self._with(headers, sent),
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                body = await answer.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{self.url} did not answer ({type(error).__name__})") from error
        return understood(answer.status, body)

    async def lines(
        self, path: str, headers: Mapping[str, str], sent: Any = None
    ) -> AsyncGenerator[str, None]:
        """The lines of a stream until it ends. With `sent` the request is a POST."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=60)
        try:
            async with self._open().request(
                "GET" if sent is None else "POST",
                self.url + path,
                data=None if sent is None else json_bytes("request", sent),
                headers=self._with(headers, sent),
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                if answer.status >= 300:
                    understood(answer.status, await answer.read())
                async for line in answer.content:
                    yield line.decode().rstrip("\r\n")
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{self.url} did not answer ({type(error).__name__})") from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), connector=aiohttp.TCPConnector(limit=0)
            )
        return self._session

    def _with(self, headers: Mapping[str, str] | None, sent: Any) -> dict[str, str]:
        kind = {} if sent is None else {"Content-Type": "application/json"}
        return {**self._headers, **kind, **(headers or {})}


def understood(status: int, body: bytes) -> Any:
    try:
        value = orjson.loads(body) if body else None
    except orjson.JSONDecodeError:
        value = None
    if status < 300:
        return value
    problem = value if isinstance(value, dict) else {}
    detail = problem.pop("detail", body[:200].decode(errors="replace"))
    raise ApiError(status, problem.pop("code", "error"), detail, problem)
