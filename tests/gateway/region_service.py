"""A region as a process of its own, which can be killed: it answers the calls of the dispatcher,
and tells the provider of each call, for as long as it runs.

    python -m tests.gateway.region_service REGION PORT PROVIDER_PORT SECONDS"""

from __future__ import annotations

import asyncio
import json
import sys

from aiohttp import web


class RegionService:
    def __init__(self, region: str, provider_port: int, seconds: float) -> None:
        self._region, self._provider_port, self._seconds = region, provider_port, seconds

    async def execute(self, request: web.Request) -> web.Response:
        meta = (await request.json())["meta"]
        reader, writer = await asyncio.open_connection("127.0.0.1", self._provider_port)
        try:
            call = {"region": self._region, "job": meta["job_id"]}
            writer.write(json.dumps(call).encode() + b"\n")
            await reader.readline()
            await asyncio.sleep(self._seconds)
            return web.json_response({"data": {"region": self._region}})
        finally:
            writer.close()


async def main(region: str, port: str, provider_port: str, seconds: str) -> None:
    app = web.Application()
    service = RegionService(region, int(provider_port), float(seconds))
    app.router.add_post("/v1/execute", service.execute)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(port)).start()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
