"""What the package is made of: no code that executes data, and dependencies that are pinned."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import fairlane
from tests.repo.checkout import ROOT, kept_files

PACKAGE = Path(fairlane.__file__).parent
FORBIDDEN_MODULES = {"dill", "jsonpickle", "marshal", "pickle", "shelve", "yaml"}
FORBIDDEN_CALLS = {"__import__", "compile", "eval", "exec", "os.popen", "os.system"}


def test_the_package_neither_unpickles_nor_executes_data() -> None:
    """S15"""
    found = [
        f"{path.relative_to(PACKAGE).as_posix()}:{line}: {what}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, what in forbidden_in(path.read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import pickle", "pickle"),
        ("from yaml import load", "yaml"),
        ("eval(text)", "eval"),
        ("os.system(text)", "os.system"),
        ("subprocess.run(text, shell=True)", "shell=True"),
    ],
)
def test_the_search_would_find_it(source: str, what: str) -> None:
    assert list(forbidden_in(source)) == [(1, what)]


def test_the_search_leaves_ordinary_code_alone() -> None:
    assert not list(forbidden_in("re.compile(text)\nengine.exec(job)\nrun(text, shell=False)"))


def forbidden_in(source: str) -> Iterator[tuple[int, str]]:
    """The line and the name of whatever executes data."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found = {each.name.partition(".")[0] for each in names} & FORBIDDEN_MODULES
            case ast.ImportFrom(module=str(module)):
                found = {module.partition(".")[0]} & FORBIDDEN_MODULES
            case ast.Call(func=func, keywords=keywords):
                found = {ast.unparse(func)} & FORBIDDEN_CALLS
                found |= {ast.unparse(each) for each in keywords} & {"shell=True"}
            case _:
                continue
        for what in sorted(found):
            yield node.lineno, what


def test_every_dependency_is_pinned_to_one_version() -> None:
    """S22"""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    several = [project["dependencies"], *project["optional-dependencies"].values()]
    wanted = {normal(text) for texts in several for text in texts} - {"fairlane"}
    pins = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    loose = [pin for pin in pins if not re.match(r"[\w.-]+==[\w.!+]+(?: ; .+)?$", pin)]
    assert not loose
    assert wanted <= {normal(pin) for pin in pins}


def normal(requirement: str) -> str:
    """The name of the package in a requirement, as installers compare it."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def test_nothing_runs_at_the_start_of_an_interpreter() -> None:
    """S22: a `.pth` file in a wheel would be executed by every Python that finds it."""
    assert not [path for path in kept_files() if path.suffix == ".pth"]
