"""What the generation demo reads from the output of its GPU."""

from __future__ import annotations

from pathlib import Path

from fairlane.demo.generation_display import loads_by_arrival
from fairlane.demo.gpu_log import GpuLog, loads_needed
from fairlane.demo.visitors import AcceptedJob, Visits


def test_a_model_is_loaded_when_it_differs_from_the_one_before() -> None:
    assert loads_needed([]) == 0
    assert loads_needed(["music", "music", "audio", "music"]) == 3
    assert loads_needed(["music", "", "music"]) == 1


def test_a_gpu_that_is_restarted_does_nothing_until_it_prints_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('{"message": "registered as w"}\ngpu 7 1000000 loads music\ngpu 7 20')
    log = GpuLog(path)
    log.read()
    assert (log.loads, log.loading(7), log.runs(7), log.loading(8)) == (1, "music", "", "")
    with path.open("a") as more:
        more.write("00000 loaded music\ngpu 7 2500000 begins job-1 music\n")
    log.read()
    assert (log.runs(7), log.runs(8), log.is_new(7), log.is_new(8)) == ("job-1", "", False, True)
    with path.open("a") as more:
        more.write("gpu 8 3000000 loads music\ngpu 8 4000000 begins job-1 music\n")
        more.write("gpu 8 5000000 ends job-1\n")
    log.read()
    assert (log.loads, log.begun, log.done) == (2, {"job-1": 2.5}, {"job-1"})


def test_order_of_arrival_is_counted_for_as_many_jobs_as_have_begun(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"gpu 7 1 begins job-{n} music\n" for n in (1, 3, 5)))
    log = GpuLog(path)
    log.read()
    models = {1: "music", 2: "audio", 3: "music", 4: "audio", 5: "music"}
    visits = Visits({f"job-{n}": AcceptedJob("free", model, 0) for n, model in models.items()})
    assert loads_by_arrival(visits, log) == 3
    visits.cancelled.add("job-2")
    assert loads_by_arrival(visits, log) == 2
