"""ARCHITECTURE.md tells where each concept lives, and the file says so in its first lines."""

import ast
import re
from pathlib import Path

import pytest

from tests.repo.checkout import ROOT, SOURCE
from tests.repo.tables import table

PACKAGE = SOURCE / "fairlane"
MIN_CONCEPTS = 60
ROWS = table(ROOT / "ARCHITECTURE.md", "Where to find it")
FILE = re.compile(r"[\w/]+(?:\.(?:py|lua|sql)|/)")
CONCEPTS = [(row["concept"], FILE.findall(row["file"])) for row in ROWS]


def test_there_are_enough_concepts() -> None:
    assert len(CONCEPTS) >= MIN_CONCEPTS
    names = [concept for concept, _ in CONCEPTS]
    assert len(names) == len(set(names)), "each concept once"


@pytest.mark.parametrize(("concept", "files"), CONCEPTS, ids=[name for name, _ in CONCEPTS])
def test_a_concept_is_where_the_table_says(concept: str, files: list[str]) -> None:
    """Every file exists, and the first one names the concept in its docstring or header comment,
    so that a search for the industry's term finds it."""
    assert files, f"{concept}: name a file"
    for file in files:
        assert (PACKAGE / file).exists(), f"{concept}: there is no {file}"
    missing = words(concept) - words(head_of(PACKAGE / files[0]))
    assert not missing, f"{files[0]} does not say {sorted(missing)} at its top"


def head_of(path: Path) -> str:
    """The docstring of a module or package; the first lines of anything else."""
    file = path / "__init__.py" if path.is_dir() else path
    text = file.read_text("utf-8")
    if file.suffix == ".py":
        return (ast.get_docstring(ast.parse(text)) or "") + " " + path.stem
    return "\n".join(text.splitlines()[:12])


def words(text: str) -> set[str]:
    """Words without their endings: `rate limits`, `Rate limiting` and `rate-limit` are alike."""
    found = re.findall(r"[a-z0-9]+", text.lower())
    found = [word for word in found if word not in {"and", "over", "the"}]
    return {re.sub(r"(ing|ers|er|ies|es|ed|s|e|y)$", "", word) for word in found if len(word) > 2}
