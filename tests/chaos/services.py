"""The called services of the chaos suite: they write when each call begins and ends."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from aiohttp import web

from fairlane.demo.services import SimulatedExecution, SimulatedService
from tests.chaos.history import HistoryWriter


def recorded(name: str, history: HistoryWriter) -> SimulatedService:
    """It takes any number of calls and finishes each, so a limit that is exceeded is seen."""

    async def work(call: SimulatedExecution) -> Any:
        call_id = f"{name}/{uuid.uuid4()}"
        history.note(
            "call",
            id=call_id,
            service=name,
            job=call.job,
            step=call.step,
            attempt=call.attempt,
        )
        try:
            await asyncio.sleep(call.params["seconds"])
        finally:
            history.note("call_end", id=call_id)
        if call.attempt <= call.params["fails"]:
            return web.Response(status=500)
        return {"call": call_id}

    return SimulatedService(name, work=work)
