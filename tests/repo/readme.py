"""The fenced blocks of a page, README.md unless another is named, and how they are run."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.repo.checkout import ROOT

README = ROOT / "README.md"
FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
SHELLS = {"bash", "sh", "shell", "console"}
BETWEEN_COMMANDS = {"|", "||", "&", "&&", ";", "(", ")"}
PATIENCE = 60


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def blocks(page: Path = README) -> list[Block]:
    text = page.read_text("utf-8") if page.exists() else ""
    return [
        Block(match["language"], match["text"], text.count("\n", 0, match.start()) + 1)
        for match in FENCE.finditer(text)
    ]


def python_blocks(page: Path = README) -> list[Block]:
    return [block for block in blocks(page) if block.language in {"python", "py"}]


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, in that folder, as a reader would run it."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONWARNINGS": "error", "TERM": "dumb"},
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
    )


def shell_commands() -> list[list[str]]:
    """Every command of every shell block, as words; variables set in front are left out."""
    return [
        command
        for block in blocks()
        if block.language in SHELLS
        for line in typed_lines(block)
        for command in commands_in(line)
    ]


def typed_lines(block: Block) -> Iterator[str]:
    """Without prompts and output, and with a string that spans lines in one piece."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    typed = ""
    for line in lines:
        typed += line
        try:
            shlex.split(typed, comments=True)
        except ValueError:  # a quotation is still open
            typed += "\n"
        else:
            yield typed
            typed = ""
    assert not typed, f"README.md, line {block.line}: a quotation never closes"


def commands_in(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    command: list[str] = []
    for word in lexer:
        if word in BETWEEN_COMMANDS:
            yield from [command] if command else []
            command = []
        elif word[0] in "<>":
            lexer.get_token()  # the file it comes from or goes to
        elif command or not re.match(r"\w+=", word):
            command.append(word)
    yield from [command] if command else []


def arguments_of(program: str, commands: list[list[str]]) -> list[list[str]]:
    """What README.md passes to a program, however the program is called there."""
    found = []
    for command in commands:
        name = command[0].rsplit("/", 1)[-1]
        if name == program:
            found.append(command[1:])
        elif name in {"python", "python3"} and command[1:3] == ["-m", program]:
            found.append(command[3:])
        elif name in {"python", "python3"} and command[1:2] == [program]:
            found.append(command[2:])
    return found
