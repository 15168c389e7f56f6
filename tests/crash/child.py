"""Dies at every failpoint of a scenario, one process a point, and recovers from each death.

    python -m tests.crash.child SCENARIO FOLDER

Prints what was found as JSON. A program of its own, because a process can be forked safely only
before it has threads; it imports everything once, so that a fork costs next to nothing."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import os
import re
import shutil
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fairlane.clock import ManualClock, seconds
from tests.crash.failpoints import KILLED, Failpoints
from tests.crash.life import Life, read_diary
from tests.crash.recovery import recover
from tests.crash.scenarios import CREDITS, SCENARIOS

AT_ONCE = 2 * (os.cpu_count() or 1)
TOKEN = re.compile("[0-9a-f]{32}")


def sweep(scenario: str, folder: Path) -> dict[str, Any]:
    """Once without a crash to count the points, then once for each of them, then recover from
    everything that was found in their places."""
    for name, job in (("prepared", prepare), ("counted", live)):
        status = wait(fork(partial(job, scenario, folder / name)))
        assert status == 0, f"{name}: {status}"
    points: list[str] = json.loads((folder / "counted" / "points").read_text("utf-8"))
    places = {folder / str(number): point for number, point in enumerate(points, start=1)}
    failures = []
    aftermaths = {digest(folder / "counted"): folder / "counted"}
    crashes = {place: partial(live, scenario, place, int(place.name)) for place in places}
    for place, status in run_all(crashes):
        aftermaths.setdefault(digest(place), place)
        if status != KILLED:
            failures.append(f"{places[place]}: ended with {status} instead of dying")
    recoveries = {
        place.with_name(f"{place.name}-{fate}"): partial(recovery, place, fate)
        for place in aftermaths.values()
        for fate in ("gone", "asks-again")
    }
    for place, status in run_all(recoveries):
        verdict = (place / "verdict").read_text("utf-8") if status == 0 else f"died: {status}"
        if verdict:
            crashed = place.with_name(place.name.partition("-")[0])
            failures.append(f"{places.get(crashed, 'no crash')}, {place.name}:\n{verdict}")
    return {"points": points, "aftermaths": len(aftermaths), "failures": failures}


def run_all(jobs: Mapping[Path, Callable[[], None]]) -> Iterator[tuple[Path, int]]:
    """Each in a process of its own, a few at a time; how they end, as they end."""
    running: dict[int, Path] = {}
    waiting = list(jobs.items())[::-1]
    while waiting or running:
        if waiting and len(running) < AT_ONCE:
            place, job = waiting.pop()
            running[fork(job)] = place
        else:
            child, status = os.wait()
            yield running.pop(child), os.waitstatus_to_exitcode(status)


def fork(body: Callable[[], None]) -> int:
    """A child that does this and exits, whatever happens."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        body()
        status = 0
    except BaseException:  # noqa: BLE001 - it is the end of this process
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# --- in a process of its own ---------------------------------------------------------------
def prepare(scenario: str, folder: Path) -> None:
    folder.mkdir()
    asyncio.run(_prepare(scenario, folder))


async def _prepare(scenario: str, folder: Path) -> None:
    life = Life(folder, Failpoints(), ManualClock())
    await life.begin()
    await life.engine.add_credits("ann", CREDITS, "salary")
    for call in SCENARIOS[scenario].prepare:
        await life.do(call)
    await life.engine.stop()


def live(scenario: str, folder: Path, crash_at: int = 0) -> None:
    """Go on from what was prepared, and die on the way."""
    shutil.copytree(folder.with_name("prepared"), folder)
    points = Failpoints(crash_at)
    asyncio.run(_live(scenario, folder, points))
    (folder / "points").write_text(json.dumps(points.names), "utf-8")


async def _live(scenario: str, folder: Path, points: Failpoints) -> None:
    story = read_diary(folder / "diary")
    life = Life(folder, points, ManualClock(story.at + seconds(1)))
    for asked in story.asked:
        life.known.learn(asked.call, asked.answer)
    await life.begin()
    points.armed = True
    for call in SCENARIOS[scenario].act:
        await life.do(call)
    points.armed = False
    await life.engine.stop()


def recovery(crashed: Path, fate: str) -> None:
    """Leaves a verdict; an empty one is a good one."""
    folder = crashed.with_name(f"{crashed.name}-{fate}")
    shutil.copytree(crashed, folder)
    verdict = ""
    try:
        recover(folder, repeats=fate == "asks-again")
    except Exception:  # noqa: BLE001 - whatever it is, it belongs into the verdict
        verdict = traceback.format_exc()
    (folder / "verdict").write_text(verdict, "utf-8")


def digest(crashed: Path) -> str:
    """The same for two crashes that left the same ledger and the same diary, whatever tokens were
    drawn: recovery cannot tell them apart."""
    left = [(crashed / "diary").read_text("utf-8")]
    connection = sqlite3.connect(f"file:{crashed / 'ledger.db'}?mode=ro", uri=True)
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
        left.append(table)
        left += map(repr, connection.execute(f"SELECT * FROM {table}"))  # noqa: S608
    connection.close()
    names: dict[str, str] = {}
    text = TOKEN.sub(lambda found: names.setdefault(found[0], f"token {len(names)}"), str(left))
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    gc.freeze()  # what all forks share stays shared
    gc.disable()
    print(json.dumps(sweep(sys.argv[1], Path(sys.argv[2]))))
