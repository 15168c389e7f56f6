"""A gateway for the browser: a real `fairlane serve`, and services that do what a job's input says.

The services run on an event loop in a thread of their own, because Playwright's interface here is
the synchronous one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, Self

import httpx2
from aiohttp import web

from fairlane.demo.processes import ServeProcess
from fairlane.demo.services import SimulatedExecution, SimulatedService

SETTINGS = """
[server]
data = "ledger"

[tiers]
order = ["high", "medium", "low"]
default = "medium"

[tiers.high]
target = 30

[tiers.medium]
target = 600
promote = { high = 3600 }

[tiers.low]
target = 3600

[credits]
currency = "credits"
skip_prices = [[3600, 3]]

[services.prompt_enhancer]
limit = 5
max_attempts = 2
backoff = [0]

[services.fast_chat_llm]
limit = 4
max_attempts = 1

[services.image_gen]
limit = 1
max_attempts = 1

[services.model_3d_gen.regions.US]
limit = 2

[services.model_3d_gen.regions.EU]
limit = 2

[pipelines]
full_pipeline = ["prompt_enhancer", "fast_chat_llm", "image_gen"]

[tasks]
fairness = "user"

[callbacks]
private = ["127.0.0.1"]
ports = [9]
"""
CALLED = {
    "FAIRLANE_SERVICES__PROMPT_ENHANCER__URL": "prompt_enhancer",
    "FAIRLANE_SERVICES__FAST_CHAT_LLM__URL": "fast_chat_llm",
    "FAIRLANE_SERVICES__IMAGE_GEN__URL": "image_gen",
    "FAIRLANE_SERVICES__MODEL_3D_GEN__REGIONS__US__URL": "model_3d_gen_us",
    "FAIRLANE_SERVICES__MODEL_3D_GEN__REGIONS__EU__URL": "model_3d_gen_eu",
}
ADMIN_KEY = "browser." + "0123456789abcdef" * 4
"""The key of a test server, made up here."""

PLAYERS = (("ada", "high"), ("grace", "medium"), ("linus", "low"), ("bulk", "low"))


class Services:
    """A job whose input says `hold` runs until `release`; one that says `fail` is refused."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="services")
        self._stack = AsyncExitStack()
        self._released: asyncio.Event | None = None
        self.urls: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def release(self) -> None:
        """Ends every call that is held, now and later."""
        self._run(self._end_calls())

    async def _end_calls(self) -> None:
        assert self._released is not None
        self._released.set()

    async def _start(self) -> None:
        self._released = asyncio.Event()
        for variable, name in CALLED.items():
            service = SimulatedService(name, work=self._work)
            await self._stack.enter_async_context(service.serving())
            self.urls[variable] = service.url

    async def _work(self, call: SimulatedExecution) -> Any:
        assert self._released is not None
        params = call.params if isinstance(call.params, dict) else {}
        if params.get("hold"):
            await self._released.wait()
        if fault := params.get("fail"):
            return web.json_response({"detail": str(fault)}, status=400)
        return {"text": "Neon towers rise", "echo": params}

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(20)


class Site:
    """A server with services of its own, and a client of its API."""

    def __init__(self, folder: Path, admin_key: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._config, self._key = folder / "fairlane.toml", admin_key
        self._config.write_text(SETTINGS.replace('"ledger"', f'"{folder / "ledger"}"'))
        self._stack = ExitStack()
        self.services = Services()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.services)
            key = {"FAIRLANE_ADMIN_KEY": self._key} if self._key else {}
            arguments = ("--config", str(self._config))
            self.server = ServeProcess(arguments, {**self.services.urls, **key})
            stack.enter_context(self.server)
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            client = httpx2.Client(base_url=self.server.url, headers=headers, timeout=20)
            self.api = stack.enter_context(client)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.services.release()
        self._stack.close()

    @property
    def url(self) -> str:
        return self.server.url

    def submit(self, name: str, user: str = "ada", tier: str = "high", **more: Any) -> str:
        if self._key:
            self.api.put(f"/admin/users/{user}", json={"priority": tier})
        rights = {} if self._key else {"priority": tier}
        body = {"feature_name": name, "user_id": user, **rights, **more}
        response = self.api.post("/api/v1/jobs", json=body)
        assert response.status_code == 202, response.text
        return str(response.json()["job_id"])

    def play(self) -> list[str]:
        """Traffic that fills every service and leaves a queue in each."""
        held = {"hold": True, "prompt": "A futuristic city"}
        found = []
        for name, jobs in (("prompt_enhancer", 9), ("image_gen", 5), ("model_3d_gen", 6)):
            for n in range(jobs):
                user, tier = PLAYERS[n % len(PLAYERS)]
                more = {"model": "sdxl"} if name == "image_gen" else {}
                found.append(self.submit(name, user, tier, input_data=held, **more))
        return found

    def job(self, job_id: str) -> dict[str, Any]:
        found = self.api.get(f"/api/v1/jobs/{job_id}").json()
        assert isinstance(found, dict)
        return found
