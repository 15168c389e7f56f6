"""Every mutant fits the source as it is now, names a promise and a test that exists. Whether its
test notices it is for `make mutants` to say."""

import re
import shutil
from pathlib import Path

import pytest

from tests.guarantees import promises
from tests.mutants.mutant import BrokenMutant, Hunk, patches, read
from tests.repo.checkout import ROOT, SOURCE

NOT_YET_BROKEN = {"I37", "I40"}
"""Promises without a mutant, because nothing in the source keeps them yet."""

KEPT_ELSEWHERE = {"S22"}
"""Promises that no fault in the source can break."""

MOST_CHANGED = 12
"""Lines that a mutant takes away or puts in: a fault is a small thing."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mutated")
    shutil.copytree(SOURCE, made / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return made


@pytest.mark.parametrize("path", patches(), ids=lambda path: path.stem)
def test_a_mutant_fits_the_source_and_changes_it(path: Path, copy: Path) -> None:
    mutant = read(path)
    before = {hunk.file: (ROOT / hunk.file).read_text("utf-8") for hunk in mutant.hunks}
    for file, text in before.items():
        (copy / file).write_text(text, "utf-8")
    mutant.apply(copy)
    for file, text in before.items():
        after = (copy / file).read_text("utf-8")
        assert after != text
        if file.endswith(".py"):
            compile(after, file, "exec")
        (copy / file).write_text(text, "utf-8")


@pytest.mark.parametrize("path", patches(), ids=lambda path: path.stem)
def test_a_mutant_names_a_promise_and_a_test_that_exists(path: Path) -> None:
    mutant = read(path)
    kind, number = mutant.promise[0].lower(), mutant.promise[1:]
    beginning = "policy_" if mutant.promise == "policy" else f"{kind}{number:0>2}_"
    assert path.stem.startswith(beginning)
    assert mutant.fault.endswith("."), "say in a sentence what is broken"
    file, _, test = mutant.test.partition("::")
    name = test.partition("[")[0]
    assert re.search(rf"^(?:async )?def {name}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("path", patches(), ids=lambda path: path.stem)
def test_a_mutant_is_small(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    changed = [line for line in lines if re.match(r"[-+](?![-+]{2} [ab]/)", line)]
    assert 0 < len(changed) <= MOST_CHANGED


def test_every_promise_has_a_mutant_or_is_named_here() -> None:
    broken = {read(path).promise for path in patches()}
    assert broken == set(promises()) - NOT_YET_BROKEN - KEPT_ELSEWHERE


def test_a_hunk_that_is_not_there_exactly_once_is_refused_by_name() -> None:
    hunk = Hunk("src/fairlane/ids.py", 2, "\nb = 1\n", "\nb = 2\n")
    assert hunk.applied_to("\na = 1\nb = 1\n") == "\na = 1\nb = 2\n"
    for text in ("\na = 1\n", "\nb = 1\na = 1\nb = 1\n"):
        with pytest.raises(BrokenMutant, match=r"src/fairlane/ids\.py, hunk 2"):
            hunk.applied_to(text)
