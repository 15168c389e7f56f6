"""Mutants follow the source: across moves, renames and other changes, or they are shown as
conflicts and left alone. Each test has a small repository of its own."""

import os
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from tests.mutants import carry
from tests.mutants.mutant import Mutant, read
from tests.mutants.renames import BrokenMap, read_map, read_moves

SLOTS = '''\
"""Slots of a pool."""

LIMIT = 4


def take(desk, wanted):
    """Take a slot."""
    if wanted > LIMIT:
        return False
    desk.append(wanted)
    return True


def give_back(desk, slot):
    """Give a slot back."""
    if slot in desk:
        desk.remove(slot)
    return len(desk)
'''
TEST = """\
def test_no_more_than_the_limit():
    pass


def test_a_slot_given_back_is_free():
    pass
"""
OVER_THE_LIMIT = """\
# I7: Any slot is granted.
# test: tests/test_slots.py::test_no_more_than_the_limit
--- a/src/slots.py
+++ b/src/slots.py
@@ -7,3 +7,3 @@
     \"""Take a slot.\"""
-    if wanted > LIMIT:
+    if wanted > LIMIT + len(desk):
         return False
"""


class Repository:
    """A repository with one source file, one file of tests and one mutant."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q")
        self.write("src/slots.py", SLOTS)
        self.write("tests/test_slots.py", TEST)
        self.write("tests/mutants/i07_over_the_limit.patch", OVER_THE_LIMIT)
        self.git("add", "--all")
        self.git("commit", "-q", "-m", "the base")

    def git(self, *arguments: str) -> None:
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@fairlane.example")
        alone = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}
        alone |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(["git", *identity, *arguments], cwd=self.root, env=alone, check=True)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def replace(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text("utf-8")
        assert old in text
        self.write(path, text.replace(old, new))

    def move(self, old: str, new: str) -> None:
        (self.root / new).parent.mkdir(parents=True, exist_ok=True)
        (self.root / old).rename(self.root / new)

    def carry(self, *arguments: str) -> int:
        return carry.main(["--base", "HEAD", *arguments], self.root)

    def map(self, text: str) -> str:
        """A rename map, as an argument."""
        file = self.root.parent / "renames"
        file.write_text(dedent(text), "utf-8")
        return f"--rename-map={file}"

    @property
    def patch(self) -> str:
        return (self.root / "tests/mutants/i07_over_the_limit.patch").read_text("utf-8")

    @property
    def mutant(self) -> Mutant:
        return read(self.root / "tests/mutants/i07_over_the_limit.patch")

    def planted(self, path: str) -> str:
        """The file with the fault in it. Raises what a mutant raises that does not fit."""
        copy = self.root.parent / "copy"
        shutil.copytree(self.root / "src", copy / "src")
        self.mutant.apply(copy)
        return (copy / path).read_text("utf-8")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    if shutil.which("git") is None:
        pytest.skip("needs git")
    (tmp_path / "repository").mkdir()
    return Repository(tmp_path / "repository")


def test_a_mutant_whose_lines_only_moved_down_is_left_as_it_is(repository: Repository) -> None:
    repository.replace("src/slots.py", "LIMIT = 4\n", "LIMIT = 4\nLEAST = 1\n")
    assert repository.carry() == 0
    assert repository.patch == OVER_THE_LIMIT


def test_a_mutant_follows_a_file_that_moved(repository: Repository) -> None:
    repository.move("src/slots.py", "src/pools/granted.py")
    assert repository.carry() == 0
    assert repository.patch == OVER_THE_LIMIT.replace("src/slots.py", "src/pools/granted.py")


def test_a_mutant_follows_a_file_that_moved_and_hardly_looks_the_same(
    repository: Repository,
) -> None:
    rewritten = "\n".join(f"ANOTHER_{number} = {number}" for number in range(100)) + "\n" + SLOTS
    repository.move("src/slots.py", "src/pools.py")
    repository.write("src/pools.py", rewritten)
    assert repository.carry() == 1
    assert repository.carry("--moved", "src/slots.py=src/pools.py") == 0
    assert "wanted > LIMIT + len(desk)" in repository.planted("src/pools.py")


def test_a_mutant_follows_its_lines_into_a_part_of_a_split_file(repository: Repository) -> None:
    head, _, rest = SLOTS.partition("\n\ndef give_back")
    repository.write("src/slots.py", f'"""Slots given back."""\n\n\ndef give_back{rest}')
    repository.write("src/granted.py", head)
    assert repository.carry("--moved=src/slots.py=src/granted.py") == 0
    assert {hunk.file for hunk in repository.mutant.hunks} == {"src/granted.py"}


def test_a_mutated_line_with_a_renamed_identifier_is_carried_with_a_map(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    for old, new in (("LIMIT", "MAX_SLOTS"), ("desk", "pool")):
        repository.replace("src/slots.py", old, new)
    assert repository.carry() == 1
    said = capsys.readouterr().out
    assert "if wanted > MAX_SLOTS:" in said
    assert "if wanted > LIMIT + len(desk):" in said
    assert repository.patch == OVER_THE_LIMIT, "a conflict is left alone"

    renames = repository.map(r"""
        # both are gone
        s/\bLIMIT\b/MAX_SLOTS/
        src/: s,\bdesk\b,pool,
    """)
    assert repository.carry(renames) == 0
    assert "    if wanted > MAX_SLOTS + len(pool):\n" in repository.planted("src/slots.py")


def test_a_mutant_that_would_name_what_is_gone_is_a_conflict(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be killed by a NameError, whatever its test is about."""
    repository.replace("src/slots.py", "desk", "pool")
    assert repository.carry() == 1
    assert "nowhere in the source any more: desk" in capsys.readouterr().out
    repository.write("src/desks.py", "desk = 1\n")
    assert repository.carry() == 1
    assert "does not know these names" in capsys.readouterr().out
    assert repository.carry(repository.map(r"s/\bdesk\b/pool/")) == 0


def test_lines_that_the_longer_name_breaks_are_carried(repository: Repository) -> None:
    longer = "the_limit_of_all_slots_that_may_be_granted_at_the_same_time_by_this_one_pool_of_slots"
    broken = f"    if (\n        wanted\n        > {longer}\n    ):\n"
    repository.replace("src/slots.py", "    if wanted > LIMIT:\n", broken)
    repository.replace("src/slots.py", "LIMIT", longer)
    assert repository.carry(repository.map(rf"s/\bLIMIT\b/{longer}/")) == 0
    assert "+ len(desk)" in repository.planted("src/slots.py")


def test_a_changed_line_beside_the_fault_is_no_conflict_but_is_mentioned(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.replace("src/slots.py", "        return False\n", "        return None\n")
    repository.replace("src/slots.py", '"""Take a slot."""', '"""Take one."""')
    repository.replace("src/slots.py", "    if wanted > LIMIT:\n", "    if wanted > LIMIT :\n")
    assert repository.carry() == 1, "the line itself is another one"
    repository.replace("src/slots.py", "    if wanted > LIMIT :\n", "    if wanted > LIMIT:\n")
    assert repository.carry() == 1, "the line is too short to be sure"
    capsys.readouterr()

    repository.write("src/slots.py", SLOTS.replace("wanted", "wanted_slot_number"))
    repository.replace("tests/mutants/i07_over_the_limit.patch", "wanted", "wanted_slot_number")
    repository.git("commit", "-qam", "longer names")
    repository.replace("src/slots.py", "        return False\n", "        return None\n")
    assert repository.carry() == 0
    assert "look at the lines beside it in src/slots.py" in capsys.readouterr().out
    assert "LIMIT + len(desk):\n        return None" in repository.planted("src/slots.py")


def test_context_is_added_until_the_lines_stand_once(repository: Repository) -> None:
    twin = SLOTS[SLOTS.index("def take") : SLOTS.index("def give_back")]
    repository.write("src/slots.py", SLOTS + "\n\n" + twin.replace("def take", "def take_later"))
    assert repository.carry() == 0
    assert "def take(desk, wanted):" in repository.patch
    assert repository.planted("src/slots.py").index("len(desk):") < SLOTS.index("give_back")


def test_a_source_that_reads_like_the_fault_is_a_conflict(repository: Repository) -> None:
    repository.replace("src/slots.py", "wanted > LIMIT:", "wanted > LIMIT + len(desk):")
    assert repository.carry() == 1


def test_a_mutant_follows_its_test(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.move("tests/test_slots.py", "tests/unit/test_pools.py")
    assert repository.carry() == 0
    assert repository.mutant.test == "tests/unit/test_pools.py::test_no_more_than_the_limit"

    repository.replace("tests/unit/test_pools.py", "test_no_more_than", "test_never_more_than")
    capsys.readouterr()
    assert repository.carry() == 1
    assert "there is: test_never_more_than_the_limit" in capsys.readouterr().out
    assert repository.carry(repository.map(r"s/\btest_no_more_than/test_never_more_than/")) == 0
    assert repository.mutant.test == "tests/unit/test_pools.py::test_never_more_than_the_limit"


def test_a_mutant_follows_a_test_that_went_to_another_file_with_its_parameters(
    repository: Repository,
) -> None:
    repository.replace("tests/mutants/i07_over_the_limit.patch", "_the_limit\n", "_the_limit[4]\n")
    repository.write("tests/test_slots.py", TEST[TEST.index("def test_a_slot") :])
    repository.write("tests/test_limits.py", TEST[: TEST.index("\n\ndef test_a_slot")])
    assert repository.carry() == 0
    assert repository.mutant.test == "tests/test_limits.py::test_no_more_than_the_limit[4]"


def test_a_mutant_carried_once_stays_and_follows_the_next_change(repository: Repository) -> None:
    repository.move("src/slots.py", "src/pools.py")
    assert repository.carry() == 0
    carried = repository.patch
    assert repository.carry() == 0
    assert repository.patch == carried
    repository.replace("src/pools.py", "LIMIT", "MAX_SLOTS")
    assert repository.carry(repository.map(r"s/\bLIMIT\b/MAX_SLOTS/")) == 0
    assert "wanted > MAX_SLOTS + len(desk)" in repository.planted("src/pools.py")


def test_a_dry_run_writes_nothing(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.move("src/slots.py", "src/pools.py")
    assert repository.carry("--dry-run") == 0
    assert repository.patch == OVER_THE_LIMIT
    assert capsys.readouterr().out.endswith("1 carried, 0 unchanged, 0 conflict\n")


def test_an_unknown_base_is_told(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert carry.main(["--base", "no-such-branch"], repository.root) == 2
    assert "no-such-branch" in capsys.readouterr().err


# --- the rename map ------------------------------------------------------------------------------
def test_the_surest_line_of_a_map_says_where_a_file_went() -> None:
    renames = read_map("a/ → b/\na/deep/ -> c/\na/deep/one.py → d.py\na/deep/one.py → e.py\n")
    assert renames.moved("a/two.py") == ["b/two.py"]
    assert renames.moved("a/deep/two.py") == ["c/two.py"]
    assert renames.moved("a/deep/one.py") == ["d.py", "e.py"]
    assert renames.moved("elsewhere.py") == []


def test_a_rule_with_a_path_holds_there_only() -> None:
    renames = read_map("a/: s/old/new/\nb.py: s|new/(x)|\\1|\n")
    assert renames.renamed("a/one.py", "old") == "new"
    assert renames.renamed("b.py", "old new/x") == "old x"


@pytest.mark.parametrize("line", ["one two", "s/old/new", "s/(/new/", "s/old/\\1/", "a/ → b.py"])
def test_a_map_that_cannot_be_read_is_refused(line: str) -> None:
    with pytest.raises(BrokenMap):
        read_map(line)


def test_a_move_that_cannot_be_read_is_refused() -> None:
    assert read_moves(["a.py=b.py"]).moved("a.py") == ["b.py"]
    with pytest.raises(BrokenMap, match="--moved old/path=new/path"):
        read_moves(["a.py"])
