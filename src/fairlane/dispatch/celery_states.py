"""The states and results of Celery tasks, as workers store them in the result backend: started,
progress, a result or a fault."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from fairlane.dispatch.service_responses import MAX_REASON_CHARACTERS, Bad, Good, Meaning
from fairlane.dispatch.streamed_response import Told
from fairlane.json_text import large_integer
from fairlane.model.attempt import Fault
from fairlane.model.celery_bridge import CeleryTask
from fairlane.model.progress import bounded

FINAL = frozenset({"SUCCESS", "FAILURE", "REVOKED"})
WAITING = frozenset({"PENDING", "RECEIVED"})
TIME_LIMITS = frozenset({"TimeLimitExceeded", "SoftTimeLimitExceeded"})


class Started(NamedTuple):
    """A worker runs the task: its node name, if the state tells it."""

    node: str = ""


class Retrying(NamedTuple):
    """Celery will run the task once more. Until then its message waits in the broker, where no
    worker knows of it."""


class Revoked(NamedTuple):
    """Celery says that the task will not run, or has been terminated."""


State = Started | Told | Retrying | Revoked | Meaning


def understand_state(service: str, task: CeleryTask, stored: bytes) -> State | None:
    """What the worker has stored. None if it says nothing new. Only JSON is read: no pickle, and no
    type tags of kombu."""
    try:
        said: Any = orjson.loads(stored)
    except orjson.JSONDecodeError:
        message = f"{service} stored something that is not JSON (nor are NaN and Infinity)"
        return Bad(Fault.SERVICE_ERROR, f'{message}; its app needs result_serializer = "json"')
    status = said.get("status") if isinstance(said, dict) else None
    if status in WAITING or not isinstance(status, str):
        return None
    if status == "SUCCESS":
        return _result(service, task, stored, said.get("result"))
    if status == "FAILURE":
        return _failure(service, task, said.get("result"))
    if status == "REVOKED":
        return Revoked()
    if status == "RETRY":
        return Retrying()
    return _running(status, said.get("result"))


def is_final(stored: bytes | None) -> bool:
    try:
        return _status(stored) in FINAL
    except orjson.JSONDecodeError:
        return True  # only a result can be something else than JSON


def is_revoked(stored: bytes | None) -> bool:
    try:
        return bool(_status(stored) == "REVOKED")
    except orjson.JSONDecodeError:
        return False


def _status(stored: bytes | None) -> Any:
    said: Any = orjson.loads(stored or b"null")
    return said.get("status") if isinstance(said, dict) else None


def _result(service: str, task: CeleryTask, stored: bytes, result: Any) -> Meaning:
    if len(stored) > task.max_result:
        message = f"{service} returned more than {task.max_result} bytes"
        return Bad(Fault.RESULT_TOO_LARGE, message)
    large = large_integer(stored)
    if large is not None:
        message = f"{service} returned the integer {large}, which has more than 64 bits"
        return Bad(Fault.SERVICE_ERROR, f"{message}; it can return it as text")
    return Good(result, None)


def _failure(service: str, task: CeleryTask, error: Any) -> Bad:
    """An exception of a task is retried, like one of a worker's handler. What Celery's own retries
    have already tried can be limited with max_attempts."""
    kind, message = "an exception", ""
    if isinstance(error, dict):
        kind, message = str(error.get("exc_type") or kind), _text(error.get("exc_message"))
    if kind == "NotRegistered":
        message = f'no worker of the queue {task.queue} knows the task "{task.name}"'
        return Bad(Fault.SERVICE_ERROR, f"{service}: {message}; check celery_task")
    fault = Fault.TIMEOUT if kind in TIME_LIMITS else Fault.TRANSIENT
    return Bad(fault, f"{service} raised {kind}{f': {message}' if message else ''}")


def _text(message: Any) -> str:
    parts = message if isinstance(message, list) else [message]
    return ", ".join(str(part) for part in parts if part is not None)[:MAX_REASON_CHARACTERS]


def _running(status: str, info: Any) -> Started | Told | None:
    """STARTED names the worker. Any other state is the task's own, with its progress as `percent`
    or as `current` and `total`."""
    if not isinstance(info, dict):
        return Started()
    if status == "STARTED":
        node = info.get("hostname")
        return Started(node if isinstance(node, str) else "")
    percent = _percent(info)
    if percent is None:
        return Started()
    text = info.get("text", info.get("status"))
    told = bounded(percent, text if isinstance(text, str) else "")
    return Started() if told is None else Told(*told)


def _percent(info: dict[str, Any]) -> float | None:
    """As `percent`, or as `current` of `total`."""
    if _is_number(info.get("percent")):
        return float(info["percent"])
    if _is_number(info.get("current")) and _is_number(info.get("total")) and info["total"]:
        return 100 * float(info["current"]) / float(info["total"])
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
