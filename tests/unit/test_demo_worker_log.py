"""What the demo reads from the output of its workers."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest

from fairlane.demo.generation_display import loads_by_arrival
from fairlane.demo.traffic import SimulatedProvider
from fairlane.demo.visitors import AcceptedJob, Visits
from fairlane.demo.worker_log import WorkerLog, loads_needed, running


def test_a_model_is_loaded_when_it_differs_from_the_one_before() -> None:
    assert loads_needed([]) == 0
    assert loads_needed(["music", "music", "audio", "music"]) == 3
    assert loads_needed(["music", "", "music"]) == 1


def test_a_gpu_that_is_restarted_does_nothing_until_it_prints_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('{"message": "registered as w"}\nworker 7 1000000 loads music\nworker 7 20')
    log = WorkerLog(path)
    log.read()
    assert (log.loads, log.loading(7), log.runs(7), log.loading(8)) == (1, "music", "", "")
    with path.open("a") as more:
        more.write("00000 loaded music\nworker 7 2500000 begins job-1 music\n")
    log.read()
    assert (log.runs(7), log.runs(8), log.is_new(7), log.is_new(8)) == ("job-1", "", False, True)
    with path.open("a") as more:
        more.write("worker 8 3000000 loads music\nworker 8 4000000 begins job-1 music\n")
        more.write("worker 8 5000000 ends job-1\n")
    log.read()
    assert (log.loads, log.begun, log.done) == (2, {"job-1": 2.5}, {"job-1"})


def test_order_of_arrival_is_counted_for_as_many_jobs_as_have_begun(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"worker 7 1 begins job-{n} music\n" for n in (1, 3, 5)))
    log = WorkerLog(path)
    log.read()
    models = {1: "music", 2: "audio", 3: "music", 4: "audio", 5: "music"}
    visits = Visits({f"job-{n}": AcceptedJob("free", model, 0) for n, model in models.items()})
    assert loads_by_arrival(visits, log) == 3
    visits.cancelled.add("job-2")
    assert loads_by_arrival(visits, log) == 2


def test_jobs_at_once_are_counted_until_they_end_or_stop_and_for_one_process(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    events = ["7 1 begins a flux", "7 2 begins b flux", "7 3 stops a", "7 4 begins c", "7 5 ends b"]
    path.write_text("".join(f"worker {event}\n" for event in events))
    log = WorkerLog(path)
    log.read()
    assert (log.most, log.all_running(7), log.all_running(8)) == (2, {"c"}, set())
    assert log.done == {"b"}
    with path.open("a") as more:
        more.write("worker 8 6 begins d\nworker 8 7 begins e\n")
    log.read()
    assert (log.most, log.all_running(7), log.all_running(8)) == (2, set(), {"d", "e"})


def test_a_worker_prints_the_end_of_a_job_only_if_the_job_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running("job-1", "flux"):
        pass
    with suppress(RuntimeError), running("job-2", ""):
        raise RuntimeError
    path = tmp_path / "log"
    path.write_text(capsys.readouterr().out)
    log = WorkerLog(path)
    log.read()
    assert (log.models, log.done, log.most) == ({"job-1": "flux", "job-2": ""}, {"job-1"}, 1)
    assert log.all_running(os.getpid()) == set()


async def test_a_provider_refuses_and_counts_calls_above_its_limit() -> None:
    provider, gate = SimulatedProvider("modal", limit=2), asyncio.Event()

    async def work() -> str:
        await gate.wait()
        return "done"

    calls = [asyncio.create_task(provider.counted(work)) for _ in range(3)]
    done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    assert [each.result().status for each in done] == [503]
    gate.set()
    answers = await asyncio.gather(*calls)
    assert answers.count("done") == 2
    assert (provider.most, provider.refused, provider.running) == (3, 1, 0)
