"""The fenced blocks of the pages. Each block is executed, compared or checked by a test:

| language | what a test does with it |
|---|---|
| `python` | the blocks of a page are one program; it prints what `# →` says (`test_python.py`) |
| `bash` | the blocks of a page are one shell session (`test_shell.py`) |
| `json`, `text` after `bash` | the output of that block, compared |
| `toml` | settings: loaded as `fairlane check` does (`test_settings.py`) |
| `json` elsewhere | parsed |
| `text`, `console` elsewhere | an example of output |

A block that cannot be executed here has the line `<!-- not run: REASON -->` before it. A test
counts these, and `python3 dev.py docs` lists them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.repo.checkout import ROOT, kept_files

README = ROOT / "README.md"
DOCS = ROOT / "docs"
FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]*?) -->\n\n?)?"
    r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```\s*$",
    re.MULTILINE | re.DOTALL,
)
FILE_NAME = re.compile(r"# ([\w-]+\.(?:py|toml))\n")
BETWEEN_COMMANDS = {"|", "||", "&", "&&", ";", "(", ")"}
NOT_PAGES = (DOCS / "decisions", ROOT / "CHANGELOG.md")
"""A decision quotes code of its time, and an entry of the changelog is not a page to follow."""


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int
    not_run: str = ""
    """Why it cannot be executed here, or empty."""

    follows: bool = False
    """Only an empty line stands between it and the block before."""

    @property
    def file_name(self) -> str:
        """The file that the first line names, or empty: the reader saves the block there."""
        found = FILE_NAME.match(self.text)
        return found[1] if found else ""


def pages() -> list[Path]:
    """Every page whose blocks a reader may follow."""
    found = [path for path in kept_files() if path.suffix == ".md"]
    return [path for path in found if not any(path.is_relative_to(each) for each in NOT_PAGES)]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text, end = page.read_text("utf-8"), 0
    found = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("language")) + 1
        follows = end > 0 and not text[end : match.start()].strip()
        found.append(Block(match["language"], match["text"], line, match["reason"] or "", follows))
        end = match.end()
    return found


def run_blocks(page: Path, language: str) -> list[Block]:
    """The blocks of that language that a test executes."""
    return [each for each in blocks(page) if each.language == language and not each.not_run]


def blocks_not_run() -> list[tuple[Path, Block]]:
    return [(page, each) for page in pages() for each in blocks(page) if each.not_run]


def listing(found: list[tuple[Path, Block]]) -> str:
    """One line for each block that is not executed."""
    return "\n".join(f"  {name_of(page)}:{each.line}: {each.not_run}" for page, each in found)


# ── commands ──────────────────────────────────────────────────────────────────────────────────


def commands_of(page: Path) -> list[list[str]]:
    """Every command of every shell block as words, also of blocks that are not executed.
    Variables set in front are left out."""
    return [
        command
        for block in blocks(page)
        if block.language == "bash"
        for line in typed_lines(block)
        for command in commands_in(line)
    ]


def typed_lines(block: Block) -> Iterator[str]:
    """The lines, and a string that spans lines in one piece."""
    typed = ""
    for line in block.text.replace("\\\n", " ").splitlines():
        typed += line
        try:
            shlex.split(typed, comments=True)
        except ValueError:  # a quotation is still open
            typed += "\n"
        else:
            yield typed
            typed = ""
    assert not typed, f"line {block.line}: a quotation never closes"


def commands_in(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(re.sub(r"\d>&\d", "", line), posix=True, punctuation_chars=True)
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
    """What the commands pass to a program, in each way to call it."""
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
