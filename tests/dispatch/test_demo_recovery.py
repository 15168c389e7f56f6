"""What the demo says it is waiting for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlane.demo.display import line
from fairlane.demo.processes import Gateway
from fairlane.demo.recovery import DemoRecovery
from fairlane.demo.traffic import Scene, scenery

pytestmark = pytest.mark.embedded


def status(scene: Scene, **running: int) -> dict[str, Any]:
    counts = {each.name: running.get(each.name, 0) for each in scene.services}
    return {"services": {name: {"running": n, "waiting": 0} for name, n in counts.items()}}


async def test_a_killed_process_is_named_until_it_is_up_and_its_calls_are_given_up(
    tmp_path: Path,
) -> None:
    async with scenery(100) as scene:
        gateway = Gateway(tmp_path, {"FAIRLANE_SERVER__DATA": str(tmp_path)}, 0)
        (process,) = gateway.processes
        recovery = DemoRecovery(gateway)
        try:
            await gateway.start()
            assert recovery.look(1.0) == []
            assert recovery.waiting_for(status(scene, image_gen=1), scene, 1.0) == ""
            assert recovery.waiting_for(None, scene, 1.0) == "an API to answer"
            process.kill()
            assert recovery.look(2.0) == ["fairlane serve was killed; starting it again"]
            assert recovery.waiting_for(None, scene, 5.0) == "fairlane serve to start (3 s)"
            await recovery.end()
            assert recovery.look(6.0) == ["fairlane serve was killed; it has been started again"]
            held = status(scene, image_gen=1, fast_chat_llm=2)
            scene.waiting_for = recovery.waiting_for(held, scene, 7.0)
            assert scene.waiting_for.startswith("3 slots of calls that the killed process had")
            assert scene.waiting_for.endswith("after the restart (1 s ago)")
            assert f"; waiting for {scene.waiting_for}" in line(held, scene, 7.0)
            assert recovery.waiting_for(status(scene), scene, 8.0) == ""
            assert recovery.waiting_for(held, scene, 6.0 + gateway.longest_hold + 3) == ""
        finally:
            gateway.stop()
