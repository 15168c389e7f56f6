"""Every command that a page names exists, with its options; also those that no test executes."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from fairlane.cli import app
from fairlane.cli.simulate import RUN, RunUnlessNamed
from tests.docs.blocks import arguments_of, commands_in, commands_of, name_of, pages
from tests.repo.checkout import ROOT

PROGRAM: Any = typer.main.get_command(app)
TYPED = [(page, command) for page in pages() for command in commands_of(page)]


def test_every_fairlane_command_is_accepted() -> None:
    wrong = []
    for page, command in TYPED:
        for arguments in arguments_of("fairlane", [command]):
            try:
                accept(arguments)
            except typer.Exit:  # it asked for the version or for help
                continue
            except Exception as error:  # noqa: BLE001 - the parser has many
                wrong.append(f"{name_of(page)}: fairlane {' '.join(arguments)}: {error}")
    assert not wrong, "\n".join(wrong)


def accept(arguments: list[str]) -> None:
    """The parser judges each option; the command does not run."""
    command = PROGRAM
    words = list(arguments)
    while words and getattr(command, "commands", None) and not words[0].startswith("-"):
        if isinstance(command, RunUnlessNamed) and words[0] not in command.commands:
            words.insert(0, RUN)
        with typer.Context(command, info_name="fairlane") as context:
            _, command, words = command.resolve_command(context, words)
    command.make_context("fairlane", words).close()


@pytest.mark.parametrize(("program", "known"), [("make", "targets"), ("dev.py", "commands")])
def test_every_make_target_and_dev_command_exists(program: str, known: str) -> None:
    names = makefile_targets() if known == "targets" else dev_commands()
    for page, command in TYPED:
        for arguments in arguments_of(program, [command]):
            targets = [word for word in arguments if "=" not in word and not word.startswith("-")]
            assert set(targets[:1]) <= names, f"{name_of(page)}: {' '.join(command)}"


def test_make_and_dev_offer_the_same_commands() -> None:
    assert makefile_targets() == dev_commands()


def test_an_unknown_option_is_noticed() -> None:
    with pytest.raises(Exception, match="nonsense"):
        accept(["serve", "--nonsense"])


def test_shell_lines_are_read_as_a_shell_reads_them() -> None:
    line = 'A=1 make test ARGS="-k x" && fairlane jobs --tier high | head > out  # why'
    assert list(commands_in(line)) == [
        ["make", "test", "ARGS=-k x"],
        ["fairlane", "jobs", "--tier", "high"],
        ["head"],
    ]


def makefile_targets() -> set[str]:
    rules = re.findall(r"^([\w ]+):(?!=)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    return {target for rule in rules for target in rule.split()} - {"help"}


def dev_commands() -> set[str]:
    spec = importlib.util.spec_from_file_location("dev", Path(ROOT / "dev.py"))
    assert spec is not None
    assert spec.loader is not None
    dev = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dev)
    return set(dev.COMMANDS)
