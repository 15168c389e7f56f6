"""`make chaos SEED=7 MINUTES=5`: a cluster under load and faults, then the verdict of the history
checker. The last line has the figures."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import uvloop

from tests.chaos.faults import FaultInjector
from tests.chaos.final_state import FinalState
from tests.chaos.history import HistoryWriter
from tests.chaos.load import ChaosClient
from tests.chaos.plan import (
    CLIENTS,
    LEASE_SECONDS,
    RECOVERY_SECONDS,
    SERVICES,
    client_plan,
    fault_plan,
)
from tests.chaos.system import ADMIN, ChaosSystem
from tests.small_disk import enter_namespace

QUIET_SECONDS = 8.0
"""Seconds of load without faults at the end, in which the cluster recovers."""

DRAIN_SECONDS = 240.0
SLOT_SAMPLE_SECONDS = 1.0
POLL_SECONDS = 0.5


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--keep", type=Path, help="folder for the history and the logs")
    asked = parser.parse_args(arguments)
    enter_namespace("tests.chaos", arguments)
    folder = asked.keep or Path(tempfile.mkdtemp(prefix=f"fairlane-chaos-{asked.seed}-"))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "history.jsonl"
    for old in (*folder.glob("*.jsonl"), *folder.glob("*.log")):
        old.unlink()
    print(f"seed {asked.seed}, {asked.minutes:g} min, history and logs in {folder}", flush=True)
    healthy = uvloop.run(run(asked.seed, asked.minutes * 60, folder, file))
    found = bugs(folder, file)
    print(*log_summary(folder), *(f"bug: {each}" for each in found), sep="\n", flush=True)
    verdict = subprocess.call([sys.executable, "-m", "fairlane.history_check", file])
    return verdict or (0 if healthy and not found else 1)


async def run(seed: int, seconds: float, folder: Path, file: Path) -> bool:
    """Returns whether every process lived until it was told to end, and all work has ended."""
    history = HistoryWriter(file)
    history.write(
        "run",
        seed=seed,
        limits={name: each["limit"] for name, each in SERVICES.items()},
        strict=[name for name, each in SERVICES.items() if each["overrun"] == "strict"],
        lease_seconds=LEASE_SECONDS,
        recovery_seconds=RECOVERY_SECONDS,
    )
    async with ChaosSystem(folder, history) as system:
        without = frozenset() if system.disk else frozenset({"disk_full"})
        if without:
            print("skipped: disk_full (no right to mount a small file system)", flush=True)
        headers = {"Authorization": f"Bearer {ADMIN}"}
        async with httpx2.AsyncClient(
            base_url=system.api_urls[0], headers=headers, timeout=30
        ) as api:
            final = FinalState(system.database, api, history)
            over = asyncio.Event()
            clients = [
                asyncio.create_task(
                    ChaosClient(f"client-{n}", system.api_urls, ADMIN, history).run(
                        client_plan(seed, n), over
                    )
                )
                for n in range(CLIENTS)
            ]
            sampler = asyncio.create_task(sample_slots(final))
            plan = fault_plan(seed, max(5.0, seconds - QUIET_SECONDS), without=without)
            await FaultInjector(system).run(plan)
            await asyncio.sleep(QUIET_SECONDS)
            over.set()
            await asyncio.gather(*clients)
            sampler.cancel()
            ended = await drained(final)
            await final.write()
        gone = await system.leave()
    for name in system.processes:
        history.append_file(folder / f"{name}.jsonl")
    history.close()
    for name, codes in gone.items():
        print(f"{name} ended by itself: exit codes {codes}; see {folder / name}.log")
    return ended and not gone


async def sample_slots(final: FinalState) -> None:
    """Reads the taken slots once a second, while the database answers."""
    while True:
        try:
            async with asyncio.timeout(5):
                await final.note_slots()
        except Exception:  # noqa: BLE001, S110 - the database is the target of faults
            pass
        await asyncio.sleep(SLOT_SAMPLE_SECONDS)


async def drained(final: FinalState) -> bool:
    """Waits until no job is left and no slot is taken. False if that does not happen."""
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while await final.live_jobs() or await final.note_slots():  # noqa: ASYNC110 - the database
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        print(f"jobs are left or slots are taken {DRAIN_SECONDS:g} s after the load")
        return False
    return True


def log_summary(folder: Path) -> list[str]:
    """Errors in the logs of the processes, each once."""
    found = Counter[str]()
    for entry in log_errors(folder):
        found[f"{entry['message']}: {entry.get('error', '')}"] += 1
    return [f"in the logs, {n} times: {text}" for text, n in found.most_common(12)]


def bugs(folder: Path, file: Path) -> list[str]:
    """What no fault explains: an internal error in a log, or a request that was answered so."""
    found = {
        f"{entry['message']}: {entry['error']} at {entry['where'][-1]}"
        for entry in log_errors(folder)
        if "please report it" in entry["message"]
    }
    for log in folder.glob("*.log"):
        if "\nTraceback " in log.read_text(errors="replace"):
            found.add(f"a traceback in {log}")
    with file.open(encoding="utf-8") as lines:
        answers = [json.loads(line) for line in lines if '"kind": "response"' in line]
    wrong = [each["id"] for each in answers if each["status"] == 500]
    return sorted(found) + [f"500 was answered to {each}" for each in wrong]


def log_errors(folder: Path) -> Iterator[dict[str, Any]]:
    for log in folder.glob("*.log"):
        for line in log.read_text(errors="replace").splitlines():
            if '"level":"error"' in line:
                yield json.loads(line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
