"""docs/guarantees.md lists every promise, and what holds it."""

import re
from collections import Counter

from tests import guarantees
from tests.guarantees import NOT_YET, PAGE, Evidence, named, named_in_file, shown

EVERY_PROMISE = [*(f"I{number}" for number in range(1, 41)), *(f"S{n}" for n in range(1, 27))]


def test_every_promise_has_one_row() -> None:
    assert Counter(guarantees.promises()) == Counter([*EVERY_PROMISE, "policy"])


def test_every_promise_that_a_test_or_a_mutant_names_is_on_the_page() -> None:
    assert set(guarantees.evidence()) <= set(guarantees.promises())


def test_the_page_names_the_tests_and_mutants_that_there_are() -> None:
    assert PAGE.read_text("utf-8") == guarantees.page(), "run: python -m tests.guarantees --write"


def test_a_promise_is_one_sentence() -> None:
    for row in guarantees.ROW.finditer(PAGE.read_text("utf-8")):
        assert re.fullmatch(r"[A-Z].*[^.]\.", row[2]), row[2]
        assert ". " not in row[2], row[2]


def test_a_promise_without_tests_or_mutants_says_so() -> None:
    assert shown("I7", "It holds.", Evidence()) == f"| I7 | It holds. | {NOT_YET} | {NOT_YET} |"
    files = ("tests/conformance/test_limits.py", "tests/crash/recovery.py")
    assert shown("I7", "It holds.", Evidence(files, 3)) == (
        "| I7 | It holds. | [conformance/limits], [crash/recovery.py] | 3 |"
    )


def test_numbers_are_found_in_docstrings_only() -> None:
    source = '"""Keys (S4)."""\n\ndef test_it():\n    """I7, I9 to I11: it holds."""\n    "I12"\n'
    assert named_in_file(source) == {"S4", "I7", "I9", "I10", "I11"}
    assert list(named("I1–I3 and S26, not I123, XI4 or I5b")) == ["I1", "I2", "I3", "S26"]
