"""`python -m fairlane.history_check FILE`: checks a history. The exit code is 1 if a promise was
broken, 2 if the file is not a history."""

from __future__ import annotations

import sys
from pathlib import Path

from fairlane.history_check.check import check
from fairlane.history_check.records import HistoryError, read_history


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m fairlane.history_check FILE\n")
        return 2
    try:
        with Path(arguments[0]).open(encoding="utf-8") as lines:
            report = check(read_history(lines))
    except (OSError, HistoryError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{report.text}\n")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
