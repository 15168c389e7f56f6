"""A Ray Serve application whose deployment is a task consumer: `serve.run(application(url))`."""

from __future__ import annotations

from typing import Any

from ray import serve
from ray.serve.schema import CeleryAdapterConfig, TaskProcessorConfig
from ray.serve.task_consumer import task_consumer, task_handler

QUEUE = "pictures"


def application(url: str) -> Any:
    config = TaskProcessorConfig(
        queue_name=QUEUE,
        adapter_config=CeleryAdapterConfig(
            broker_url=url,
            backend_url=url,
            app_custom_config={"task_track_started": True, "worker_prefetch_multiplier": 1},
        ),
        max_retries=0,
    )

    @serve.deployment(max_ongoing_requests=2, ray_actor_options={"num_cpus": 1})
    @task_consumer(task_processor_config=config)
    class Renderer:
        @task_handler(name="render")
        def render(self, name: str) -> dict[str, str]:
            import os

            import redis

            with redis.Redis.from_url(url, socket_timeout=None) as client:
                client.rpush(f"started:{name}", os.getpid())
                client.blpop([f"go:{name}"], timeout=60)
            return {"picture": f"{name}.png"}

    return Renderer.bind()  # type: ignore[attr-defined]
