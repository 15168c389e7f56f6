"""Nothing in the repository belongs to one machine, one registry or one person.

Words are written in two halves here, so that this file may be searched like any other.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.checkout import ROOT, kept_files


def any_of(*halves: tuple[str, str]) -> str:
    return "|".join(re.escape("".join(pair)) for pair in halves)


REGISTRIES = any_of(("pypi", ".org"), ("python", "hosted"), ("npm", "js"), ("registry", ".npm"))
MACHINE_PATHS = r"(?<![\w./])/(?:" + any_of(("ro", "ot"), ("ho", "me"), ("wo", "rk")) + r")/"
SECRET_SHAPES = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY",
    r"\bAKIA[0-9A-Z]{16}\b",
    r"\b(?:ghp|gho|ghs|ghu|github_pat)_\w{20,}",
    r"\bglpat-[\w-]{20,}",
    r"\bxox[abprs]-[\w-]{10,}",
    r"\bsk-[A-Za-z0-9_-]{20,}",
    r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.",
    r"://[^\s/:@{}<>$]+:[^\s/:@{}<>$]{6,}@",
    r"(?i:password|passwd|secret|token|api_?key)[\"']?\s*[:=]\s*[\"'](?=\w*\d)[\w+/=-]{20,}[\"']",
)
SECRETS = "|".join(SECRET_SHAPES)
TALK_ABOUT_ITS_MAKING = (
    r"(?i)(?<![a-z])(?:"
    + any_of(
        ("clau", "de"),
        ("anthro", "pic"),
        ("open", "ai"),
        ("chat", "gpt"),
        ("co", "pilot"),
        ("llm", "-generated"),
        ("ai", "-generated"),
        ("generated ", "by ai"),
        ("co-auth", "ored-by"),
    )
    + ")"
)


@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        pytest.param(REGISTRIES, "name the package, not where it came from", id="registry"),
        pytest.param(MACHINE_PATHS, "use a path relative to the repository", id="machine-path"),
        pytest.param(SECRETS, "take it out, and change it where it was in use", id="secret"),
        pytest.param(TALK_ABOUT_ITS_MAKING, "speak of Fairlane only", id="its-making"),
    ],
)
def test_no_kept_file_contains_what_belongs_elsewhere(pattern: str, advice: str) -> None:
    found = [hit for path in kept_files() for hit in hits(path, re.compile(pattern))]
    assert not found, f"{advice}:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("pattern", "example"),
    [
        (REGISTRIES, "https://py" + "pi.org/simple"),
        (MACHINE_PATHS, "cd /ho" + "me/ada/fairlane"),
        (SECRETS, "-----BEGIN RSA " + "PRIVATE KEY-----"),
        (SECRETS, 'api_key = "' + "a1b2c3d4" * 4 + '"'),
        (SECRETS, "postgresql://ada:" + "hunter22@db"),
        (TALK_ABOUT_ITS_MAKING, "with Co" + "pilot"),
    ],
)
def test_the_search_would_find_it(pattern: str, example: str) -> None:
    assert re.search(pattern, example)


@pytest.mark.parametrize(
    ("pattern", "example"),
    [
        (MACHINE_PATHS, "https://fairlane.example/work/1"),
        (SECRETS, 'token = "the lease token of attempt 3"'),
        (TALK_ABOUT_ITS_MAKING, "a gateway for scarce AI capacity: each LLM call, each model"),
    ],
)
def test_the_search_leaves_ordinary_words_alone(pattern: str, example: str) -> None:
    assert not re.search(pattern, example)


def hits(path: Path, pattern: re.Pattern[str]) -> Iterator[str]:
    where = path.relative_to(ROOT).as_posix()
    if pattern.search(where):
        yield f"{where}: its name"
    for number, line in enumerate(text_of(path).splitlines(), start=1):
        if match := pattern.search(line):
            yield f"{where}:{number}: {match.group()}"


def text_of(path: Path) -> str:
    content = path.read_bytes()
    return "" if b"\0" in content else content.decode("utf-8", errors="replace")
