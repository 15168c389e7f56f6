"""Everything that kills, stops, floods or cuts off, on real servers and processes. `--short` leaves
out what takes longest; further arguments go to pytest."""

from __future__ import annotations

import subprocess
import sys

PYTEST = (sys.executable, "-m", "pytest", "-q")
SHORT = (
    "test_killed",
    "test_index_damaged",
    "test_outbox",
    "test_database_away",
    "test_dispatchers",
    "test_no_leader",
    "test_paused",
    "test_limits_crossing",
    "test_lock_stress",
    "test_postgres",
    "test_postgres_plans",
    "test_postgres_job_lists",
)
SHORT_GATEWAY = tuple(
    f"tests/gateway/test_{name}.py"
    for name in ("events", "inference", "leaving", "region_flows", "silent_stores")
)
"""Over HTTP, what differs between one process and several."""

WHOLE = (
    "tests/cluster",
    "tests/dispatch",
    "tests/worker",
    "tests/webhooks",
    "tests/api",
    "tests/gateway",
    "tests/doctor",
)
EMBEDDED = ("--stores=embedded", "-m", "long", "tests/gateway", "tests/dispatch", "tests/worker")
"""What `make test` leaves out of one process alone."""

NOTHING_CHOSEN = 5


def main(further: list[str]) -> int:
    if "--short" in further:
        further.remove("--short")
        files = [*(f"tests/cluster/{name}.py" for name in SHORT), *SHORT_GATEWAY]
        return _run("--stores=cluster", "-m", "not long", *files, *further)
    return max(_run(*EMBEDDED, *further), _run("--stores=cluster", *WHOLE, *further), key=abs)


def _run(*arguments: str) -> int:
    code = subprocess.call([*PYTEST, *arguments])
    return 0 if code == NOTHING_CHOSEN else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
