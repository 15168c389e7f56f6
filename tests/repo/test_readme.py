"""What README.md tells a reader to type works."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.repo.checkout import ROOT
from tests.repo.readme import (
    README,
    Block,
    arguments_of,
    blocks,
    commands_in,
    python_blocks,
    run,
    shell_commands,
)


def test_there_is_a_readme() -> None:
    assert README.exists()


def test_every_make_target_in_the_readme_exists() -> None:
    targets = {
        word
        for arguments in arguments_of("make", shell_commands())
        for word in arguments
        if "=" not in word and not word.startswith("-")
    }
    assert targets <= makefile_targets()
    assert targets <= dev_commands()


def test_every_dev_command_in_the_readme_exists() -> None:
    named = {arguments[0] for arguments in arguments_of("dev.py", shell_commands()) if arguments}
    assert named <= dev_commands()


def test_make_and_dev_offer_the_same_commands() -> None:
    assert makefile_targets() == dev_commands()


@pytest.mark.parametrize("arguments", arguments_of("fairlane", shell_commands()), ids=" ".join)
def test_every_fairlane_command_in_the_readme_exists(arguments: list[str], tmp_path: Path) -> None:
    """Asked for help after everything else, the parser has already judged each option."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    asked = run(["-m", "fairlane", *arguments[:end], "--help"], tmp_path)
    assert asked.returncode == 0, asked.stdout + asked.stderr


@pytest.mark.parametrize("block", python_blocks(), ids=lambda block: f"line-{block.line}")
def test_every_python_block_in_the_readme_runs(block: Block, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(block.text, "utf-8")
    done = run([script.name], tmp_path)
    assert done.returncode == 0, f"README.md, line {block.line}:\n{done.stdout}{done.stderr}"


def test_the_example_in_the_readme_prints_what_the_readme_shows(tmp_path: Path) -> None:
    example, *_ = python_blocks()
    (shown,) = [block for block in blocks() if block.language == "text"]
    (tmp_path / "example.py").write_text(example.text, "utf-8")
    assert run(["example.py"], tmp_path).stdout == shown.text


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
    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    dev = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dev)
    return set(dev.COMMANDS)
