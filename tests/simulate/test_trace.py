"""Reading workloads."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fairlane.errors import InvalidInput
from fairlane.model.service import Service
from fairlane.simulate.trace import read
from fairlane.simulate.workload import Workload, faster, flattened, folded, workload
from fairlane.units import SECOND
from tests.simulate.small import draw, job, settings

CSV = """t,user,tier,service,model,svc_s
10,ada,0,draw,m,2.5
12.5,linus,free,draw,,4
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    data = text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz", "no-ending"])
def test_a_table_is_read_zipped_or_not(tmp_path: Path, name: str) -> None:
    found = read(written(tmp_path, name, CSV), settings())
    assert found.arrivals == (
        job(0, 2.5, user="ada", rank=0, model="m"),
        job(2.5, 4, user="linus", rank=1),
    )


def test_json_lines_may_use_the_words_of_the_api(tmp_path: Path) -> None:
    text = (
        '{"queued_at": "2026-01-01T00:00:10Z", "user_id": "ada", "priority": "paid", '
        '"feature_name": "draw", "seconds": 3, "load_s": 1}\n\n'
        '{"queued_at": "2026-01-01T00:00:00+00:00", "feature_name": "draw", "seconds": 1}\n'
    )
    found = read(written(tmp_path, "trace.jsonl", text), settings())
    assert found.arrivals == (
        job(0, 1, user="", rank=1),
        job(10, 3, user="ada", rank=0, load=1),
    )


def test_a_pipeline_has_a_time_for_each_step_or_one_to_share(tmp_path: Path) -> None:
    catalog = settings(draw(), Service("cut"), pipelines={"film": ("draw", "cut")})
    text = "t,service,seconds\n0,film,2+3\n1,film,8\n"
    found = read(written(tmp_path, "trace.csv", text), catalog)
    assert [each.seconds for each in found.arrivals] == [
        (2 * SECOND, 3 * SECOND),
        (4 * SECOND, 4 * SECOND),
    ]


def test_one_service_can_stand_for_all(tmp_path: Path) -> None:
    text = CSV.replace("draw", "TXT_2_IMG")
    found = read(written(tmp_path, "trace.csv", text), settings(), "draw")
    assert {each.name for each in found.arrivals} == {"draw"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("user,tier\na,0\n", "lacks a column"),
        ("t,seconds\nsoon,1\n", ":2: could not convert"),
        ("t,seconds,tier\n0,1,gold\n", 'unknown tier "gold"; known: free, paid'),
        ("t,seconds,tier\n0,1,7\n", "the settings have 2"),
        ("t,seconds,service\n0,1,paint\n", 'unknown pipeline or service "paint"'),
        ("t,seconds\n0,-1\n", "cannot be below 0"),
        ("t,seconds\n0,1+2\n", "2 times for 1 steps"),
        ("t,seconds\n", "has no jobs"),
        ('{"t": 1\n', "unexpected end of data"),
        ("", "lacks a column"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match="trace") as told:
        read(written(tmp_path, "trace.csv", text), settings())
    assert says in str(told.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        read(tmp_path / "gone.csv", settings())


def at(given: Workload) -> list[float]:
    return [each.at / SECOND for each in given.arrivals]


def test_folding_lays_days_over_one_another() -> None:
    given = workload("three days", [job(0), job(90), job(130)])
    assert at(folded(given, 100)) == [0, 30, 90]


def test_flattening_gives_every_stretch_the_same_work() -> None:
    given = workload("uneven", [job(0, 30), job(50, 30), job(100, 60), job(150, 60)])
    assert at(flattened(given, 100)) == pytest.approx([0, 33.333333, 66.666666, 133.333333])


def test_twice_as_fast_is_half_the_time() -> None:
    assert at(faster(workload("", [job(0), job(10)]), 2)) == [0, 5]
