"""The settings of the Celery bridge: what is wrong with them, and what they become."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane.config.file_schema import File, ServiceTable
from fairlane.model.celery_bridge import CeleryBridge, CeleryTask

RESULT_BACKENDS = ("redis://", "rediss://", "sentinel://")


def wrong_celery(file: File) -> Iterator[tuple[str, str]]:
    table = file.celery
    if table.broker_url is not None and "://" not in table.broker_url:
        yield "celery.broker_url", "a URL is needed, such as redis://localhost:6379/0"
    backend = table.result_backend
    if backend is not None and not backend.startswith(RESULT_BACKENDS):
        yield (
            "celery.result_backend",
            "a URL begins with redis://, rediss:// or sentinel://; others cannot be read from here",
        )


def wrong_celery_task(place: str, table: ServiceTable, file: File) -> Iterator[tuple[str, str]]:
    if table.celery_task is None:
        if table.executor == "celery":
            yield f"{place}.celery_task", 'is needed: which task runs it, such as "app.render"?'
        if "celery_queue" in table.model_fields_set:
            yield f"{place}.celery_queue", "is only for a service with a celery_task; add one"
        return
    if table.executor not in (None, "celery"):
        yield (
            f"{place}.celery_task",
            f'a service with a celery_task has executor "celery", not "{table.executor}"',
        )
    for setting in ("url", "regions", "headers", "retry_on", "cancel_path"):
        if getattr(table, setting):
            yield f"{place}.{setting}", "is not for a service with a celery_task; remove one"
    if "affinity" in table.model_fields_set and table.affinity != "none":
        yield f"{place}.affinity", "Celery chooses the worker, so only none is possible; remove it"
    for setting in ("broker_url", "result_backend"):
        if getattr(file.celery, setting) is None:
            yield f"celery.{setting}", f"is needed for {place}.celery_task"


def celery_bridge(file: File) -> CeleryBridge | None:
    table = file.celery
    tasks = {
        name: CeleryTask(each.celery_task, each.celery_queue, each.max_response)
        for name, each in file.services.items()
        if each.celery_task is not None
    }
    if not tasks or table.broker_url is None or table.result_backend is None:
        return None
    return CeleryBridge(
        table.broker_url,
        table.result_backend,
        tasks,
        table.start_timeout,
        table.broker_transport_options,
        table.result_backend_transport_options,
    )
