"""The Lua verbs: what they do is written above them, and they use what they ask for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from redis.asyncio import Redis

from fairlane.index.redis import scripts
from fairlane.index.redis.shared_constants import SHARED_CONSTANTS
from fairlane.model.job import Band

VERBS = scripts.names()
SHARED = sorted(path.stem for path in (scripts.FOLDER / "include").glob("*.lua"))
DECLARED = re.compile(r"\blocal (?:function )?([\w, ]+)|\bfor ([\w, ]+) (?:=|in)\b")
PARAMETERS = re.compile(r"\bfunction\b[ \w.]*\(([\w, ]*)\)")
ASSIGNED = re.compile(r"^\s*([a-z_]\w*(?:\s*,\s*[a-z_][\w.]*)*)\s*=[^=]")
TABLE = re.compile(r"^\s*\w+\s*=.*,\s*$")


def text_of(name: str, *folders: str) -> str:
    return Path(scripts.FOLDER, *folders, f"{name}.lua").read_text("utf-8")


def without_comments(text: str) -> str:
    return "\n".join(line.partition("--")[0] for line in text.splitlines())


def words_of(text: str) -> set[str]:
    return set(re.findall(r"\w+", without_comments(text)))


def included(text: str) -> list[str]:
    return [found[1] for line in text.splitlines() if (found := scripts.INCLUDE.match(line))]


def local_names(text: str) -> set[str]:
    """Everything declared at the outermost level of a shared file."""
    lists = re.findall(r"^local (?:function )?([\w, ]+)", text, re.MULTILINE)
    return {name.strip() for names in lists for name in names.split(",")}


def offered(name: str) -> set[str]:
    """What a shared file offers, by itself or by what it includes."""
    text = text_of(name, "include")
    return local_names(text).union(*(offered(each) for each in included(text)))


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_says_what_it_does_and_names_its_arguments(verb: str) -> None:
    lines = text_of(verb).splitlines()
    header = lines[: next(n for n, line in enumerate(lines) if not line.startswith("-- "))]
    assert header, "begin with what it does"
    assert not scripts.ARGUMENT.match(header[0]), "begin with what it does"
    assert header.count("-- KEYS prefix") == 1
    body = without_comments("\n".join(lines))
    assert "KEYS[" not in body
    assert "ARGV[" not in body


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_uses_every_argument(verb: str) -> None:
    source = scripts.load(verb).source
    used = words_of("\n".join(line for line in source.splitlines() if "ARGV[" not in line))
    assert used >= {*scripts.load(verb).arguments}


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_uses_every_include(name: str) -> None:
    text = text_of(name)
    unused = [each for each in included(text) if not offered(each) & words_of(text)]
    assert not unused


@pytest.mark.parametrize("name", SHARED)
def test_a_shared_file_is_included_somewhere_and_says_what_it_holds(name: str) -> None:
    text = text_of(name, "include")
    first = next(line for line in text.splitlines() if not scripts.INCLUDE.match(line))
    assert first.startswith("-- ")
    texts = [text_of(each) for each in VERBS] + [text_of(each, "include") for each in SHARED]
    assert any(name in included(each) for each in texts)


# --- numbers that every index must agree on ------------------------------------------------------
NUMBER = re.compile(r"(?<![\w.'])\d+(?![\w.'])")
DECLARATION = re.compile(r"^local ([A-Z][A-Z_, ]*) = (.+)$", re.MULTILINE)
OWN = {"PAGE", "LOOKED_AT", "MOST_READ", "FIRST_LOOK", "LONGEST_LOOK"}
"""Constants of the scripts themselves: how much is read at once. Some happen to be equal."""
KINDS = {"KIND_SKIP", "KIND_FRONT", "KIND_AGED", "KIND_FRESH"}
"""Kinds of shares: numbers of places in Lua's lists, which begin with 1."""
THOUSANDTHS = 1_000
SMALLEST_TELLING = 10
"""Smaller numbers are places in lists; they are looked for in constants only."""


def typed_again(text: str) -> set[str]:
    """Constants, and numbers in the code, that are typed although Python hands them in."""
    shared = {value for value in SHARED_CONSTANTS.values() if value > max(Band)}
    code, found = without_comments(text), set[str]()
    for names, values in DECLARATION.findall(code):
        pairs = zip(names.split(", "), values.split(", "), strict=True) if "{" not in values else ()
        for name, value in pairs:
            if name in SHARED_CONSTANTS or (value.isdigit() and int(value) in shared):
                found.add(name)
    for number in map(int, NUMBER.findall(DECLARATION.sub("", code))):
        if number in shared and number >= SMALLEST_TELLING and number != THOUSANDTHS:
            found.add(str(number))
    return found - OWN - KINDS


@pytest.mark.parametrize("name", [*VERBS, *(f"include/{each}" for each in SHARED)])
def test_no_script_types_a_number_of_the_policy_again(name: str) -> None:
    assert not typed_again(text_of(name))


@pytest.mark.parametrize(
    "line",
    [
        "local CLOSE_AFTER = 3",
        "local GRANT, MOST = 1000, 4000",
        "  return load * 80",
        "local TIER = 2",
    ],
)
def test_a_number_that_is_typed_again_is_found(line: str) -> None:
    assert typed_again(line)


def test_every_shared_constant_is_used_and_given_its_value() -> None:
    texts = [text_of(each) for each in VERBS] + [text_of(each, "include") for each in SHARED]
    used = set[str]().union(*map(words_of, texts))
    assert used >= {*SHARED_CONSTANTS}
    for verb in VERBS:
        assert not words_of(scripts.load(verb).source) & {*SHARED_CONSTANTS}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_sets_no_global(verb: str) -> None:
    source = without_comments(scripts.load(verb).source)
    lists = [a or b for a, b in DECLARED.findall(source)] + PARAMETERS.findall(source)
    known = {name.strip() for names in lists for name in names.split(",")}
    assert not [line for line in source.splitlines() if sets_a_global(line, known)]


def sets_a_global(line: str, known: set[str]) -> bool:
    if re.match(r"^\s*function \w+\(", line):
        return True
    found = ASSIGNED.match(line)
    if found is None or TABLE.match(line):
        return False
    names = [name.strip() for name in found[1].split(",")]
    return any("." not in name and name not in known for name in names)


@pytest.mark.parametrize(
    ("line", "is_global"),
    [
        ("x = 1", True),
        ("  function look()", True),
        ("  a = b == 1", False),
        ("    counter = v[1], refund = v[2],", False),
        ("local y = 2", False),
    ],
)
def test_the_search_for_globals_finds_them(line: str, is_global: bool) -> None:
    assert sets_a_global(line, {"a"}) == is_global


async def test_the_server_understands_every_verb(redis_url: str) -> None:
    async with Redis.from_url(redis_url) as server:
        for verb in VERBS:
            script = scripts.load(verb)
            assert (await server.script_load(script.source)) in (script.sha, script.sha.encode())
