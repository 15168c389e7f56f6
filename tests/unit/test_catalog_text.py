"""The stored text of the settings: new settings are written only where they differ from their
default, so that a process of the version before reads the same text."""

from __future__ import annotations

import orjson
import pytest

from fairlane.model.catalog import Catalog, Limits
from fairlane.model.catalog_text import catalog_of, catalog_text
from fairlane.model.credits import CreditSettings
from fairlane.model.service import Affinity, Executor, Overrun, Provider, Region, Service
from fairlane.model.tier import Tier, Tiers
from fairlane.presets import PRESETS, tasks
from tests.world import TIERS

PARTS = {"tiers", "default", "services", "providers", "pipelines", "limits", "task_defaults"}


@pytest.mark.parametrize("name", PRESETS)
def test_default_prices_are_not_written(name: str) -> None:
    text = catalog_text(PRESETS[name]())
    orders = {"region_orders"} if name == "regions" else set[str]()
    assert set(orjson.loads(text)) == PARTS | {"targets"} | orders
    assert catalog_of(text).credits == CreditSettings()
    assert catalog_of(text).tiers.all == PRESETS[name]().tiers.all
    assert catalog_text(catalog_of(text)) == text


def test_own_prices_are_read_as_they_were_written() -> None:
    own = CreditSettings("gold", ((2.5, 1), (60, 7)), longer_skip_price=20)
    text = catalog_text(Catalog(TIERS, credits=own))
    assert catalog_of(text).credits == own
    assert catalog_text(catalog_of(text)) == text


OLD_TEXT = (
    '{"default":"low","limits":{"waiting":1000000,"input_bytes":1048576,"result_bytes":8388608,'
    '"context_bytes":33554432,"cells":1000,"keep_finished":604800,"keep_dead":2592000,'
    '"keep_keys":86400},"pipelines":{"a":["gpu"],"b":["gpu"]},"providers":[{"name":"p","limit":3,'
    '"rate":0}],"services":[{"name":"gpu","executor":"http","limit":2,"rate":0,"waiting":0,'
    '"provider":"p","regions":{"a":{"name":"a","limit":0},"b":{"name":"b","limit":1}},'
    '"timeout":0,"max_wait":0,"max_attempts":0,"backoff":[],"retry_place":"back",'
    '"failover":false,"overrun":"strict","affinity":"batch","batch_size":3,"fairness":"user",'
    '"shares":[500,200,250],"capabilities":["x","y"],"paused":false}],"task_defaults":null,'
    '"tiers":[{"name":"high","promote":{},"max_retries":3,"timeout":600,"pending":0,"per_hour":0,'
    '"max_duration":0,"max_running_per_user":0},{"name":"low","promote":{"high":9},'
    '"max_retries":3,"timeout":600,"pending":0,"per_hour":0,"max_duration":0,'
    '"max_running_per_user":0}]}'
)


def test_settings_that_older_versions_know_have_the_same_text_as_there() -> None:
    """To the byte: processes of both versions compare it during a rolling upgrade."""
    gpu = Service(
        "gpu",
        Executor.HTTP,
        limit=2,
        provider="p",
        regions={"a": Region("a"), "b": Region("b", 1)},
        overrun=Overrun.STRICT,
        affinity=Affinity.BATCH,
        capabilities=frozenset({"y", "x"}),
    )
    tiers = Tiers([Tier("high"), Tier("low", {"high": 9})], default="low")
    pipelines = {"b": ("gpu",), "a": ("gpu",)}
    limits = Limits(cells=1_000)  # the default then
    text = catalog_text(Catalog(tiers, [gpu], [Provider("p", limit=3)], pipelines, limits))
    assert text == OLD_TEXT


FIRST_LIMITS = {
    *("waiting", "input_bytes", "result_bytes", "context_bytes", "cells"),
    *("keep_finished", "keep_dead", "keep_keys"),
}


def with_limits(limits: Limits) -> Catalog:
    return Catalog(tasks().tiers, limits=limits, task_defaults=tasks().task_defaults)


def test_limits_that_older_versions_do_not_know_are_written_only_if_they_are_set() -> None:
    written = orjson.loads(catalog_text(with_limits(Limits())))["limits"]
    assert set(written) == FIRST_LIMITS
    changed = orjson.loads(catalog_text(with_limits(Limits(users_per_key=7))))["limits"]
    assert set(changed) == FIRST_LIMITS | {"users_per_key"}


def test_limits_that_an_older_version_wrote_get_the_defaults() -> None:
    parts = orjson.loads(catalog_text(with_limits(Limits(waiting=9))))
    assert catalog_of(orjson.dumps(parts).decode()).limits == Limits(waiting=9)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_the_limits_of_a_preset_are_read_as_they_were_written(preset: object) -> None:
    assert callable(preset)
    catalog = preset()
    assert catalog_of(catalog_text(catalog)).limits == catalog.limits


def test_regions_keep_the_order_of_the_file() -> None:
    """Of two equally loaded regions, the first in the file is chosen."""
    named = {name: Region(name, 4) for name in ("US", "EU", "ASIA")}
    catalog = Catalog(tasks().tiers, [Service("inference", regions=named)])
    text = catalog_text(catalog)
    read = catalog_of(text)
    assert [*read.services["inference"].regions] == ["US", "EU", "ASIA"]
    assert catalog_text(read) == text
