"""The settings people start from."""

from __future__ import annotations

import pytest

from fairlane.model.catalog_text import catalog_of, catalog_text
from fairlane.model.service import Executor
from fairlane.presets import PRESETS, gateway, generation


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_sound(name: str) -> None:
    settings = PRESETS[name]()
    assert settings.tiers.default in settings.tiers.names
    for pipeline in settings.pipelines:
        assert settings.steps(pipeline)


def test_the_presets_have_the_documented_limits() -> None:
    gateway, generation = PRESETS["gateway"](), PRESETS["generation"]()
    limits = {name: service.limit for name, service in gateway.services.items()}
    assert limits == {"prompt_enhancer": 5, "fast_chat_llm": 4, "image_gen": 1, "model_3d_gen": 1}
    assert gateway.tiers.patience == (0, 3600 * 10**6, 3600 * 10**6)
    assert [each // 10**6 for each in generation.tiers.patience] == [30, 45, 60, 90, 120]
    assert generation.tiers["free"].pending == 2
    assert PRESETS["regions"]().pools("inference", "EU")[-1].limit == 10
    assert set(Executor) == {Executor.HTTP, Executor.PULL, Executor.CELERY, Executor.CALLER}


def test_a_setting_that_older_versions_do_not_know_is_stored_only_if_it_is_set() -> None:
    usual, looked = catalog_text(gateway()), catalog_text(generation())
    assert "cleanup_interval" not in usual
    assert catalog_of(usual).limits == gateway().limits
    assert catalog_of(looked).limits == generation().limits
    assert generation().limits.cleanup_interval == 300
