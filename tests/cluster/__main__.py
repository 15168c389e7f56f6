"""Everything that kills, stops, floods or cuts off, on real servers and processes. `--short` leaves
out what takes longest; further arguments go to pytest."""

from __future__ import annotations

import subprocess
import sys

PYTEST = (sys.executable, "-m", "pytest", "-q", "--stores=cluster")
SHORT = (
    "test_killed",
    "test_index_damaged",
    "test_outbox",
    "test_database_away",
    "test_no_leader",
    "test_postgres",
    "test_postgres_plans",
    "test_postgres_rolls",
)
WHOLE = ("tests/cluster", "tests/dispatch", "tests/webhooks", "tests/api")


def main(further: list[str]) -> int:
    files: tuple[str, ...] = WHOLE
    if "--short" in further:
        further.remove("--short")
        files = tuple(f"tests/cluster/{name}.py" for name in SHORT)
    return subprocess.call([*PYTEST, *files, *further])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
