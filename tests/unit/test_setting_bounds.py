"""No number in the settings is so large, or so strange, that what counts with it breaks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fairlane.config.load import load
from fairlane.config.setting_errors import BadSettings
from fairlane.engine.live_settings import changed
from fairlane.errors import InvalidInput
from fairlane.model.catalog import Limits
from fairlane.model.service import Provider, Region, Service
from fairlane.model.setting_bounds import (
    MAX_BYTES,
    MAX_COUNT,
    MAX_INTERVAL_SECONDS,
    MAX_SECONDS,
    MAX_WAITING_JOBS,
)
from fairlane.model.tier import Tier
from fairlane.presets import gateway

NAN, INFINITE = float("nan"), float("inf")
BOUNDS = {
    "server": {
        MAX_BYTES: ["max_body"],
        MAX_SECONDS: ["body_timeout", "grace"],
        MAX_COUNT: ["key_rate", "submits", "connections"],
    },
    "tiers.low": {
        MAX_SECONDS: ["timeout", "max_duration", "promote.high"],
        MAX_COUNT: ["max_retries", "pending", "per_hour", "max_running_per_user"],
    },
    "services.a": {
        MAX_BYTES: ["max_response"],
        MAX_SECONDS: ["timeout", "max_wait", "model_load"],
        MAX_COUNT: ["limit", "rate", "max_attempts", "batch_size", "regions.US.limit"],
        MAX_WAITING_JOBS: ["waiting"],
    },
    "providers.p": {MAX_COUNT: ["limit", "rate"]},
    "limits": {
        MAX_BYTES: ["input_bytes", "result_bytes", "context_bytes"],
        MAX_SECONDS: ["keep_finished", "keep_dead", "keep_keys"],
        MAX_COUNT: ["cells", "users_per_key"],
        1: ["lowest_tier_share"],
        MAX_INTERVAL_SECONDS: ["cleanup_interval"],
        MAX_WAITING_JOBS: ["waiting"],
    },
    "credits": {MAX_COUNT: ["longer_skip_price"]},
    "priority": {MAX_SECONDS: ["timeout", "cache"]},
}
SETTINGS = [
    (section, name, most)
    for section, bounds in BOUNDS.items()
    for most, names in bounds.items()
    for name in names
]


def written(path: Path, section: str, setting: str) -> Path:
    file = path / "fairlane.toml"
    file.write_text(f"[{section}]\n{setting}\n", "utf-8")
    return file


@pytest.mark.parametrize(("section", "name", "most"), SETTINGS)
def test_a_number_up_to_its_bound_is_accepted_and_one_more_is_a_mistake(
    tmp_path: Path, section: str, name: str, most: int
) -> None:
    load(written(tmp_path, section, f"{name} = {most}"))
    for wrong in (str(most + 1), "-1", "1" + "0" * 400):
        with pytest.raises(BadSettings) as caught:
            load(written(tmp_path, section, f"{name} = {wrong}"))
        (problem,) = caught.value.problems
        assert problem.place == f"{section}.{name}"
    with pytest.raises(BadSettings, match=f"less than or equal to {most}, not {most + 1}"):
        load(written(tmp_path, section, f"{name} = {most + 1}"))


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e300", "-0.1"])
@pytest.mark.parametrize(
    ("section", "name"),
    [("server", "lease"), *((each, name) for each, name, most in SETTINGS if most == MAX_SECONDS)],
)
def test_a_time_that_is_no_time_is_a_mistake(
    tmp_path: Path, section: str, name: str, number: str
) -> None:
    with pytest.raises(BadSettings, match=f"{section}.{name}: input should be "):
        load(written(tmp_path, section, f"{name} = {number}"))


@pytest.mark.parametrize(
    ("setting", "mistake"),
    [
        ("backoff = [1, 1e300]", "services.a.backoff.1: input should be less than or equal to"),
        ("rate = '1000000/s'", "services.a.rate: input should be less than or equal to 1000000"),
        (f"rate = '{'9' * 400}/h'", "services.a.rate: a rate is a number per minute"),
        (f"limit = {'9' * 5000}", "is not valid TOML"),
    ],
)
def test_a_number_in_other_words_is_bounded_too(tmp_path: Path, setting: str, mistake: str) -> None:
    with pytest.raises(BadSettings, match=mistake):
        load(written(tmp_path, "services.a", setting))


@pytest.mark.parametrize(
    ("made", "mistake"),
    [
        (lambda: Service("a", limit=10**9), 'service "a": limit is 0 to 1,000,000, not 1,000,000,'),
        (lambda: Service("a", waiting=MAX_WAITING_JOBS + 1), 'service "a": waiting is'),
        (lambda: Service("a", timeout=NAN), 'service "a": timeout is 0 to 315,360,000, not nan'),
        (lambda: Service("a", max_wait=1e99), 'service "a": max_wait is'),
        (lambda: Service("a", backoff=(1, INFINITE)), 'service "a": backoff is'),
        (lambda: Region("US", -1), 'region "US": limit is 0 to 1,000,000, not -1'),
        (lambda: Provider("p", rate=10**9), 'provider "p": rate is'),
        (lambda: Tier("low", {"high": 1e300}), 'tier "low": promote is'),
        (lambda: Tier("low", timeout=INFINITE), 'tier "low": timeout is'),
        (lambda: Tier("low", pending=-1), 'tier "low": pending is'),
        (lambda: Limits(input_bytes=MAX_BYTES + 1), "limits: input_bytes is"),
        (lambda: Limits(keep_dead=NAN), "limits: keep_dead is"),
    ],
)
def test_what_is_made_in_python_has_the_same_bounds(
    made: Callable[[], object], mistake: str
) -> None:
    with pytest.raises(InvalidInput, match=mistake):
        made()


def test_a_live_change_has_the_same_bounds() -> None:
    with pytest.raises(InvalidInput, match='service "image_gen": limit is 0 to 1,000,000'):
        changed(gateway(), "services/image_gen/limit", 10**9)
