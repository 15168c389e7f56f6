"""The names of files and classes say what they are."""

import re
from collections import Counter
from pathlib import Path

from tests.repo.checkout import ROOT, SOURCE, kept_files

READ_BY_PEOPLE = {".py", ".lua", ".sql"}
NAMES_THAT_SAY_NOTHING = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}
CLASS = re.compile(r"^ *class (\w+)", re.MULTILINE)

DEFINED_TWICE = {"Event", "Job", "JobPage", "Slot", "Worker"}
"""Classes of the SDK that share their name with what they stand for inside."""


def test_no_file_or_folder_has_a_name_that_says_nothing() -> None:
    vague = [
        shown(path)
        for path in kept_files()
        if any(words_of(part) & NAMES_THAT_SAY_NOTHING for part in path.relative_to(ROOT).parts)
    ]
    assert not vague, f"name these after what they hold: {vague}"


def test_a_class_name_is_defined_once() -> None:
    sources = [path.read_text("utf-8") for path in source_files() if path.suffix == ".py"]
    names = Counter(name for text in sources for name in CLASS.findall(text))
    twice = {name for name, count in names.items() if count > 1} - DEFINED_TWICE
    assert not twice, f"a reader who searches for one of these finds two: {sorted(twice)}"


def test_there_is_source_to_look_at() -> None:
    assert source_files()


def source_files() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*") if path.suffix in READ_BY_PEOPLE)


def words_of(part: str) -> set[str]:
    """`queue_manager.py` is made of "queue" and "manager"."""
    return set(part.partition(".")[0].lower().replace("-", "_").split("_"))


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
