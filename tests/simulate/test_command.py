"""`fairlane simulate`, `fairlane jobs export` and `fairlane.testing`, as people use them."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fairlane import NewJob, WorkerSpec
from fairlane.cli import app
from fairlane.clock import ManualClock
from fairlane.compose import embedded, past_of, shared
from fairlane.config.load import load
from fairlane.config.settings import Settings
from fairlane.engine import Engine
from fairlane.model.job import Json
from fairlane.servers import Databases
from fairlane.simulate.export import lines
from fairlane.testing import assert_waits

SETTINGS = """
[tiers]
order = ["paid", "free"]
default = "free"
[tiers.paid]
promote = { paid = 30 }
[tiers.free]
promote = { paid = 60 }
[services.draw]
limit = 1
[services.cut]
limit = 1
[pipelines]
film = ["draw", "cut"]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "fairlane.toml"
    path.write_text(SETTINGS + f'[server]\ndata = "{tmp_path / "data"}"\n')
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A free job every 8 s, a paid one every 40; each takes 10 s."""
    rows = [f"{8 * n},u{n % 7},{'paid' if n % 5 == 0 else 'free'},draw,10" for n in range(100)]
    path = tmp_path / "trace.csv"
    path.write_text("t,user,tier,service,seconds\n" + "\n".join(rows))
    return path


def fairlane(*words: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in words])


def told(*words: object) -> dict[str, dict[str, object]]:
    done = fairlane(*words, "--json")
    assert done.exit_code == 0, done.output
    reports: dict[str, dict[str, object]] = json.loads(done.stdout)["reports"]
    return reports


def test_a_what_if_stands_beside_what_is(config: Path, trace: Path) -> None:
    reports = told(
        "simulate", trace, "--config", config, "--what-if", "services.draw.limit=2 limits.waiting=5"
    )
    before, after = reports["as it is"], reports["services.draw.limit=2 limits.waiting=5"]
    assert (before["places"], after["places"]) == (1, 2)
    assert before["within"] < after["within"]  # type: ignore[operator]


def test_the_table_says_what_it_was_made_from(config: Path, trace: Path) -> None:
    done = fairlane("simulate", trace, "--config", config)
    assert done.exit_code == 0
    assert "100 jobs" in done.stdout
    assert "seed 1" in done.stdout
    for word in ("paid", "free", "p95", "gap", "utilisation", "ETA p90"):
        assert word in done.stdout


def test_the_page_is_written(config: Path, trace: Path, tmp_path: Path) -> None:
    done = fairlane("simulate", trace, "--config", config, "--html", tmp_path / "page.html")
    assert done.exit_code == 0
    assert "<svg" in (tmp_path / "page.html").read_text()


def test_without_anything_a_workload_is_generated() -> None:
    reports = told("simulate", "--jobs", 200, "--preset", "gateway")
    assert reports["as it is"]["jobs"] == 200
    assert told("simulate", "--jobs", 200, "--preset", "gateway") == reports
    assert told("simulate", "--jobs", 200, "--preset", "gateway", "--seed", 2) != reports


def test_the_load_is_what_was_asked_for(config: Path, trace: Path) -> None:
    (report,) = told("simulate", trace, "--config", config, "--load", 0.5).values()
    assert report["utilisation"] == pytest.approx(0.5, abs=0.03)


def test_orders_are_compared_in_a_league_table(config: Path, trace: Path) -> None:
    done = fairlane("simulate", "compare", trace, "--config", config)
    assert done.exit_code == 0
    assert "strict + round robin" in done.stdout
    assert len(told("simulate", "compare", trace, "--config", config)) == 10


def test_each_rule_can_be_switched_off(config: Path, trace: Path) -> None:
    reports = told("simulate", "ablate", trace, "--config", config)
    assert "no fair share" in reports
    assert reports["no ageing"]["within"] is not None


@pytest.mark.parametrize(("table", "rows"), [("league", 10), ("ablation", 8)])
def test_the_tables_of_the_documentation_are_printed_as_it_shows_them(
    table: str, rows: int
) -> None:
    done = fairlane("simulate", "figures", table, "--short")
    assert done.exit_code == 0
    head, rule, *others = done.stdout.splitlines()
    assert "| C 1.1 | D 0.9 |" in head
    assert set(rule) == set("| -")
    assert len(others) == rows


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["gone.csv"], "cannot be read"),
        (["--what-if", "services.draw.limit"], "is not a change"),
        (["--what-if", "services.draw.limt=2"], "limit"),
        (["--preset", "gatway"], "gateway"),
        (["--model-load", "slow"], "neither seconds nor"),
        (["--preset", "tasks", "--load", "1"], "no service has a limit"),
    ],
)
def test_a_mistake_ends_with_what_to_do(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = fairlane("simulate", *words, "--jobs", 20)
    assert done.exit_code in (1, 78)
    assert says in done.stderr


# --- in other people's tests -------------------------------------------------------------------
def test_a_promise_that_holds_is_told_in_figures(config: Path, trace: Path) -> None:
    found = assert_waits(trace, config, tier="paid", p95_below=60, longest_below=100)
    assert found.jobs == 20


def test_a_promise_that_does_not_hold_fails_and_says_why(config: Path, trace: Path) -> None:
    with pytest.raises(AssertionError, match=r"tier free, 80 jobs: p95 \d+\.\d s, not below 1 s"):
        assert_waits(trace, config, tier="free", p95_below=1)
    with pytest.raises(AssertionError, match="within target, not above 99"):
        assert_waits(trace, config, tier="free", within_above=0.99)
    with pytest.raises(AssertionError, match="no job of tier free in cut"):
        assert_waits(trace, config, tier="free", service="cut", p50_below=1)


def test_half_the_traffic_keeps_the_promise(config: Path, trace: Path) -> None:
    assert_waits(trace, config, tier="free", service="draw", p95_below=30, traffic=0.5)


# --- the ledger's own past -----------------------------------------------------------------------
async def made_a_past(engine: Engine, clock: ManualClock) -> None:
    """A film, a drawing of a fan-out, and a job that never ran."""
    await engine.submit(NewJob("film", user="ada", tier="paid", model="m"))
    await engine.submit(NewJob("draw", {}, user="bob", matrix={"question": ("x",)}))
    worker = await engine.register(WorkerSpec("w"))
    while leases := await engine.claim(worker):
        for lease in leases:
            clock.advance(3_000_000)
            await engine.complete(lease)
    await engine.submit(NewJob("draw", user="late"))


@asynccontextmanager
async def embedded_past(config: Path) -> AsyncIterator[Settings]:
    settings = load(config)
    settings.server.data.mkdir()
    clock = ManualClock()
    async with await embedded(
        settings.catalog, settings.server.ledger, clock=clock, sweeping=False
    ) as engine:
        await made_a_past(engine, clock)
        yield settings


@asynccontextmanager
async def postgres_past(config: Path, server: Databases) -> AsyncIterator[Settings]:
    url = await server.new_database()
    flags: dict[tuple[str, ...], object] = {
        ("server", "database_url"): url,
        ("server", "unsafe"): True,
    }
    settings = load(config, flags=flags)
    clock = ManualClock()
    async with await shared(
        settings.catalog, url, clock=clock, sweeping=False, unsafe=True
    ) as engine:
        await made_a_past(engine, clock)
        yield settings


async def exported(settings: Settings) -> list[dict[str, Json]]:
    async with past_of(settings) as past:
        return [line async for line in lines(past, anonymous=True)]


@pytest.mark.parametrize("store", ["embedded", "postgres"])
async def test_the_past_is_exported_beside_its_owner_and_can_be_simulated(
    config: Path, tmp_path: Path, store: str, postgres_server: Databases
) -> None:
    made = embedded_past(config) if store == "embedded" else postgres_past(config, postgres_server)
    async with made as settings:
        rows = await exported(settings)
    assert sorted((row["service"], row["tier"], len(row["seconds"])) for row in rows) == [
        ("draw", "free", 1),
        ("film", "paid", 2),
    ]
    assert {row["user"] for row in rows} == {"u1", "u2"}
    assert all(seconds >= 3 for row in rows for seconds in row["seconds"])
    out = tmp_path / "past.jsonl"
    out.write_text("\n".join(map(json.dumps, rows)))
    assert_waits(out, config, tier="paid", longest_below=10)


def test_there_must_be_a_past_to_export(config: Path, tmp_path: Path) -> None:
    done = fairlane("jobs", "export", tmp_path / "out.jsonl.gz", "--config", config)
    assert done.exit_code == 1
    assert "there is no ledger" in done.stderr


async def test_the_command_writes_a_line_a_job(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl.gz"
    async with embedded_past(config):
        done = await asyncio.to_thread(fairlane, "jobs", "export", out, "--config", config)
    assert done.exit_code == 0, done.output
    assert len(gzip.decompress(out.read_bytes()).splitlines()) == 2
