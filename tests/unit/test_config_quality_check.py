"""The quality check of a service in fairlane.toml: three ways to name it, and every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.config.explain import explain
from fairlane.errors import InvalidInput, UnknownName
from fairlane.model.catalog_text import catalog_of, catalog_text
from fairlane.model.endpoint import Endpoint
from fairlane.model.quality_check import OnFail, QualityCheck
from fairlane.model.service import Affinity, Executor, Fairness, Service
from tests.unit.test_config import mistakes, read
from tests.world import catalog

CHECKED = """
[services.draw]
fairness = "none"
[services.draw.quality_check]
"""


def test_a_url_makes_a_called_service(tmp_path: Path) -> None:
    text = f"""{CHECKED}
    url = "http://judge:9000"
    headers = {{ Authorization = "env:JUDGE_KEY" }}
    limit = 2
    on_fail = "fail"
    """
    settings = read(tmp_path, text, JUDGE_KEY="secret")
    draw, check = settings.catalog.services["draw"], settings.catalog.services["draw.quality"]
    assert draw.quality_check == QualityCheck("draw.quality", OnFail.FAIL)
    assert check == Service(
        "draw.quality",
        executor=Executor.HTTP,
        limit=2,
        timeout=60,
        max_attempts=3,
        affinity=Affinity.NONE,
        fairness=Fairness.NONE,
    )
    assert settings.endpoints == {
        "draw.quality": Endpoint("http://judge:9000", headers={"Authorization": "secret"})
    }


def test_neither_url_nor_service_makes_a_pulled_service(tmp_path: Path) -> None:
    settings = read(tmp_path, f"{CHECKED}timeout = 5")
    assert settings.catalog.services["draw"].quality_check == QualityCheck("draw.quality")
    check = settings.catalog.services["draw.quality"]
    assert (check.executor, check.timeout) == (Executor.PULL, 5)
    assert settings.endpoints == {}


def test_a_check_is_explained(tmp_path: Path) -> None:
    (line,) = [
        line for line in explain(read(tmp_path, f'{CHECKED}on_fail = "fail"')) if "checks" in line
    ]
    assert "draw.quality checks its output, a rejected output fails the job" in line


def test_a_configured_service_may_check(tmp_path: Path) -> None:
    text = f'{CHECKED}service = "judge"\non_fail = "mark"\n[services.judge]\nlimit = 4'
    services = read(tmp_path, text).catalog.services
    assert services["draw"].quality_check == QualityCheck("judge", OnFail.MARK)
    assert set(services) == {"draw", "judge"}


@pytest.mark.parametrize(
    ("more", "mistake"),
    [
        ('service = "jugde"\n[services.judge]', "services.draw.quality_check.service"),
        (
            'service = "judge"\nurl = "http://judge:9000"\n[services.judge]',
            "services.draw.quality_check.url",
        ),
        (
            'service = "judge"\ntimeout = 60\n[services.judge]',
            "services.draw.quality_check.timeout",
        ),
        ("[services.draw.quality_check.headers]\nX = 'y'", "services.draw.quality_check.headers"),
        ('[services."draw.quality"]', "services.draw.quality_check"),
        ('on_fail = "ignore"', "services.draw.quality_check.on_fail"),
        ('url = "judge:9000"', "services.draw.quality_check.url"),
        ("nonsense = 1", "services.draw.quality_check.nonsense"),
    ],
)
def test_a_mistake_in_a_check_is_named_with_its_place(
    tmp_path: Path, more: str, mistake: str
) -> None:
    (found,) = mistakes(tmp_path, CHECKED + more)
    assert mistake in found


def test_a_check_has_no_check_and_no_caller_runs_either(tmp_path: Path) -> None:
    check = QualityCheck("judge")
    both = Service("draw", quality_check=check), Service("judge", quality_check=check)
    with pytest.raises(InvalidInput, match="has a quality check"):
        catalog(*both)
    with pytest.raises(InvalidInput, match="caller"):
        catalog(
            Service("draw", executor=Executor.CALLER, quality_check=check),
            Service("judge"),
        )
    with pytest.raises(InvalidInput, match="caller"):
        catalog(Service("draw", quality_check=check), Service("judge", executor=Executor.CALLER))
    with pytest.raises(UnknownName):
        catalog(Service("draw", quality_check=check))
    text = f'{CHECKED}service = "draw"'
    (found,) = mistakes(tmp_path, text)
    assert "has a quality check" in found


def test_the_stored_settings_name_a_check_only_if_there_is_one() -> None:
    """A process of an older version reads the text, and does not know the name."""
    assert "quality_check" not in catalog_text(catalog(Service("draw")))
    check = QualityCheck("judge", OnFail.MARK)
    settings = catalog(Service("draw", quality_check=check), Service("judge"))
    assert catalog_of(catalog_text(settings)).services == settings.services
