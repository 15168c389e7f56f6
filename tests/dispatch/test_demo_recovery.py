"""What the demo says it is waiting for."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fairlane.demo.gateway_demo import GatewayDemo
from fairlane.demo.processes import DemoProcesses
from fairlane.demo.recovery import DemoRecovery
from fairlane.demo.screen import Lines

pytestmark = pytest.mark.embedded


def status(demo: GatewayDemo, **running: int) -> dict[str, Any]:
    counts = {each.name: running.get(each.name, 0) for each in demo.scene.services}
    return {"services": {name: {"running": n, "waiting": 0} for name, n in counts.items()}}


async def test_a_killed_process_is_named_until_it_is_up_and_its_calls_are_given_up(
    tmp_path: Path,
) -> None:
    demo, printed = GatewayDemo(100), io.StringIO()
    async with demo.world():
        data = {"FAIRLANE_SERVER__DATA": str(tmp_path)}
        processes = DemoProcesses(tmp_path, "gateway", data, 0)
        (process,) = processes.all
        recovery = DemoRecovery(processes)
        try:
            await processes.start()
            assert recovery.look(1.0) == []
            assert recovery.waiting_for(demo.held(status(demo, image_gen=1)), 1.0) == ""
            assert recovery.waiting_for(None, 1.0) == "an API to answer"
            process.kill()
            assert recovery.look(2.0) == ["fairlane serve was killed; starting it again"]
            assert recovery.waiting_for(None, 5.0) == "fairlane serve to start (3 s)"
            await recovery.end()
            assert recovery.look(6.0) == ["fairlane serve was killed; it has been started again"]
            held = status(demo, image_gen=1, fast_chat_llm=2)
            assert demo.held(held) == 3
            wait = recovery.waiting_for(3, 7.0)
            assert wait.startswith("the slots (3) of work that the killed process had begun")
            assert wait.endswith("after the restart (1 s ago)")
            Lines(Console(file=printed, soft_wrap=True)).show(demo, held, 7.0, wait)
            assert f"; waiting for {wait}" in printed.getvalue()
            assert recovery.waiting_for(demo.held(status(demo)), 8.0) == ""
            assert recovery.waiting_for(3, 6.0 + processes.longest_hold + 3) == ""
        finally:
            processes.stop()
