"""Example commands that a new server prints: each can be pasted into a terminal."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fairlane.api.schemas.generation_requests import GENERATE
from fairlane.config.settings import LOOPBACK, Settings
from fairlane.model.service import Executor

EXAMPLE = "hello"
"""The task type of the example where any task type is accepted."""


def curl(settings: Settings, url: str, *, keys: bool) -> str:
    """A curl command that submits a job, or a generation if the settings have that service."""
    name, path = _name(settings), "/api/v1/jobs"
    asked: dict[str, Any] = {"feature_name": name, "input_data": {"text": "hello"}}
    if name == GENERATE:
        path, asked = "/generate", {"model": "music", "prompt": "a heron at dawn", "duration": 20}
    words = ["curl", url + path, "-H", "Content-Type: application/json", "-d", json.dumps(asked)]
    return shlex.join(words) + (' -H "Authorization: Bearer $FAIRLANE_KEY"' if keys else "")


def echo(settings: Settings, url: str) -> str | None:
    """The `fairlane echo` command that runs the job of `curl`. None if the job's services are on
    another machine or are run by other programs."""
    if not all(_is_echoed(settings, step) for step in _steps(settings)):
        return None
    origin = settings.source.removeprefix("preset ")
    named = "--config" if origin == settings.source else "--preset"
    return f"{program()} {shlex.join(['echo', named, origin, '--url', url])}"


def program() -> str:
    """The command that starts this program in a terminal."""
    if shutil.which("fairlane"):
        return "fairlane"
    if Path(sys.argv[0]).name == "fairlane":
        return shlex.quote(sys.argv[0])
    return f"{shlex.quote(sys.executable)} -m fairlane"


def stands_in(url: str) -> bool:
    """Whether `fairlane echo` can listen there: a port of this machine, without a path."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in LOOPBACK and parts.path in ("", "/")


def _name(settings: Settings) -> str:
    catalog = settings.catalog
    return next(iter([*catalog.pipelines, *catalog.services]), EXAMPLE)


def _steps(settings: Settings) -> list[str]:
    """The services of the job, with its quality checks."""
    name, services = _name(settings), settings.catalog.services
    steps = settings.catalog.pipelines.get(name, (name,))
    checks = [services[each].quality_check for each in steps if each in services]
    return [*steps, *(check.service for check in checks if check is not None)]


def _is_echoed(settings: Settings, name: str) -> bool:
    service = settings.catalog.services.get(name)
    if service is None:
        return name == EXAMPLE
    if service.executor is Executor.HTTP:
        endpoint = settings.endpoints.get(name)
        urls = [endpoint.url_in(region) for region in service.regions or [None]] if endpoint else []
        return bool(urls) and all(stands_in(url) for url in urls)
    return service.executor is Executor.PULL
