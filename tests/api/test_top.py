"""`fairlane top`: what it draws, its keys, and frames of a running server."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import aclosing
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fairlane.cli import app
from fairlane.model.job import NewJob
from fairlane.model.key import Role
from fairlane.model.worker import Worker
from fairlane.top.app import Top
from fairlane.top.feed import FeedRefused, Shown, feed
from fairlane.top.keyboard import keys_in
from fairlane.top.view import ViewState, draw, moved
from tests.api.server import Gateway, free_port
from tests.world import World

SIZES = [(80, 24), (120, 40), (60, 16), (200, 60)]


def tier(waiting: int = 0) -> dict[str, Any]:
    return {"waiting": waiting, "p95": 4.1, "p50": 1.0}


def service(**more: Any) -> dict[str, Any]:
    cells = [
        {"slot": 0, "state": "running", "tier": "high"},
        {"slot": 1, "state": "free", "tier": None},
        {"slot": 2, "state": "held", "tier": None},
    ]
    return {
        "limit": 3,
        "running": 2,
        "paused": False,
        "health": {"": {"state": "closed"}},
        "started_per_second": 2.5,
        "tiers": {"high": tier(), "low": tier(7)},
        "slots": cells,
        "next": [
            {
                "user": "ada\x1b[31m",
                "tier": "low",
                "level": "high",
                "badges": ["promoted"],
                "why": "waited 30 min",
                "eta_p50": 2.0,
                "eta_p90": 4.0,
            }
        ]
        * 5,
        **more,
    }


def frame(services: int = 2, alerts: int = 1, **more: Any) -> dict[str, Any]:
    alert = {"verdict": "wrong", "subject": "s0", "text": "nothing started for 4 min"}
    return {
        "at": 1_763_420_000_123,
        "version": "0.4.0",
        "simulated": None,
        "tiers": [
            {"name": "high", "target_seconds": 30, "share_in_target": 0.98},
            {"name": "low", "target_seconds": None, "share_in_target": None},
        ],
        "totals": {
            "slots_used": 2,
            "slots": 3,
            "waiting": 7,
            "running": 2,
            "started_per_second": 2.5,
            "dead": 1,
        },
        "alerts": [alert] * alerts,
        "services": {f"s{n}": service() for n in range(services)},
        "workers": {"w": {"state": "active"}},
        **more,
    }


def drawn(
    shown: dict[str, Any], state: ViewState | None = None, size: tuple[int, int] = (80, 24)
) -> str:
    console = Console(width=size[0], file=io.StringIO(), highlight=False)
    console.print(draw(shown, state or ViewState(), *size))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_it_shows_slots_waiting_jobs_alerts_and_who_is_next_and_why() -> None:
    text = drawn(frame())
    assert "slots 2/3" in text
    assert "high 98 % in 30s" in text
    assert "✗ s0: nothing started for 4 min" in text
    assert "wait H/L" in text
    assert "H·x" in text
    assert "low→high" in text
    assert "[promoted] waited 30 min" in text
    assert "2.0s–4.0s" in text


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("services", [0, 1, 4, 100])
@pytest.mark.parametrize("alerts", [0, 2, 9])
def test_it_fits_every_size_of_a_terminal(
    size: tuple[int, int], services: int, alerts: int
) -> None:
    lines = drawn(frame(services, alerts), size=size).splitlines()
    assert len(lines) <= size[1]
    assert all(len(line) <= size[0] for line in lines)


def test_names_of_others_cannot_control_the_terminal() -> None:
    assert "\x1b" not in drawn(frame())
    assert "ada\\x1b[31m" in drawn(frame(), size=(200, 60))


def test_simulated_time_is_marked_and_multiplied() -> None:
    text = drawn(frame(simulated={"speed": 100}), size=(120, 24))
    assert "simulated time × 100" in text
    assert "3m–7m" in text


def test_the_selected_service_is_always_in_sight() -> None:
    shown, state = frame(100), ViewState()
    for _ in range(3):
        state = moved(shown, state, -1)
    assert state.selected == "s97"
    assert "next at s97" in drawn(shown, state)
    assert any(line.startswith("s97") for line in drawn(shown, state).splitlines())


def test_keys_are_told_from_each_other() -> None:
    typed = b"\x1b[A\x1b[B\t\x1b[Zpq\x1b[5~x"
    assert list(keys_in(typed))[:6] == ["up", "down", "down", "up", "pause", "quit"]


async def test_pause_holds_the_frame_and_a_key_goes_on() -> None:
    newest = asyncio.Queue[Shown]()

    async def frames() -> Any:
        while True:
            yield await newest.get()
            newest.task_done()  # the consumer asks for the next one

    top = Top(frames(), Console(width=80, height=24, file=io.StringIO()))
    reading = asyncio.create_task(top._read())  # noqa: SLF001 - without a terminal
    await newest.put(Shown(frame(1)))
    await newest.join()
    top.press("pause")
    await newest.put(Shown(frame(1, version="9.9.9")))
    await newest.join()
    assert "PAUSED" in _text(top)
    assert "9.9.9" not in _text(top)
    top.press("pause")
    assert "9.9.9" in _text(top)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


def _text(top: Top) -> str:
    console = Console(width=80, file=io.StringIO(), highlight=False)
    console.print(top.drawn())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


# --- a running server ----------------------------------------------------------------------------
async def typed(*arguments: str, **variables: str) -> Any:
    return await asyncio.to_thread(
        lambda: CliRunner().invoke(app, arguments, env=variables, catch_exceptions=False)
    )


async def test_one_frame_is_printed_for_people_and_for_scripts(
    served: Gateway, world: World
) -> None:
    await world.engine.register(Worker("w"))
    await world.submit_all([NewJob("scarce", user="ada") for _ in range(3)])
    said = await typed("top", "--once", FAIRLANE_URL=served.url)
    assert said.exit_code == 0, said.stderr
    assert "next at scarce" in said.stdout
    assert "ada" in said.stdout
    found = json.loads((await typed("top", "--once", "--json", FAIRLANE_URL=served.url)).stdout)
    assert found["services"]["scarce"]["tiers"]["medium"]["waiting"] == 3


async def test_frames_follow_what_happens(served: Gateway, world: World) -> None:
    await world.submit("scarce")
    second = ""
    async with asyncio.timeout(60), aclosing(feed(served.url, None)) as frames:
        async for shown in frames:
            assert shown.frame is not None
            waiting = shown.frame["services"]["scarce"]["tiers"]["medium"]["waiting"]
            if waiting == 2:
                break
            if waiting == 1 and not second:
                second = await world.submit("scarce")


async def test_no_server_and_no_right_are_told_in_one_line(served: Gateway) -> None:
    away = await typed("top", "--once", FAIRLANE_URL=f"http://127.0.0.1:{free_port()}")
    assert (away.exit_code, away.stderr.count("\n")) == (69, 1)
    await served.key(Role.ADMIN)
    refused = await typed("top", "--once", FAIRLANE_URL=served.url)
    assert (refused.exit_code, refused.stderr.count("\n")) == (77, 1)
    with pytest.raises(FeedRefused):
        await anext(feed(served.url, "wrong.key"))
