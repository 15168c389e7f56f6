"""Checks of the two stores: that they answer, agree, are durable and have room."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane.doctor.facts import (
    DriftFacts,
    Facts,
    Here,
    IndexAnswer,
    IndexFacts,
    InvariantFacts,
    LedgerFacts,
    RetentionFacts,
)
from fairlane.doctor.findings import Diagnosis, FindingVerdict, check, fine, warn, wrong
from fairlane.doctor.words import count, lasts, share, size
from fairlane.units import SECOND

PSQL = 'psql "$DATABASE_URL" -c'
REDIS_CLI = 'redis-cli -u "$REDIS_URL"'
WHY_READ_ONLY = "SELECT current_database(), pg_is_in_recovery()"
CONNECTIONS = "SELECT application_name, count(*) FROM pg_stat_activity GROUP BY 1"
TRANSACTIONS = "SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start"
MIN_FREE_SHARE, MIN_FREE_BYTES = 0.1, 1 << 30
FULL, NEARLY_FULL = 0.95, 0.8
MANY_DEAD_ROWS = 100_000
OLD_TRANSACTION_MICROSECONDS = 600 * SECOND
SKEW_MICROSECONDS, LARGE_SKEW_MICROSECONDS = SECOND, 60 * SECOND


@check(
    "index-ready",
    "queue",
    (IndexAnswer, IndexFacts),
    "The index does not answer, is being rebuilt, or this process uses another index than the "
    "one that is in force. Submits are accepted; no job starts until the index is ready.",
    f"`{REDIS_CLI} PING` answers `PONG` if Redis runs. `/readyz` answers 200, because submits are "
    "accepted, with `ok, claims paused: …`. The server's log says why, in lines with `index`.",
    "If Redis is down, start it: the index is rebuilt from the ledger, nothing is lost. If two "
    "processes name different Redis servers, give all of them the same `REDIS_URL`.",
    public=True,
)
def index_ready(facts: Facts) -> Iterator[Diagnosis]:
    if not facts[IndexAnswer].answers:
        text = "Redis does not answer: no job starts; start Redis"
        yield wrong(text, "0 claims", f"{REDIS_CLI} PING", "index")
        return
    state = facts[IndexFacts].state
    command = "fairlane doctor --only index-ready --wait 60"
    if not state.ready:
        what = "is being rebuilt" if state.rebuilding else "is not ready"
        yield wrong(f"the index {what}: no job starts", "0 claims", command, "index")
    elif state.epoch != state.own_epoch:
        text = "this process uses another index than the one in force: its claims are refused"
        yield wrong(text, "0 claims", command, "index")
    else:
        yield fine("the index is ready")


@check(
    "index-drift",
    "queue",
    (DriftFacts,),
    "A job's place in the index is not the ledger's: it is missing, it should not be there, or "
    "it has another place. A missing job does not start. The reconciler corrects this every 30 "
    "s.",
    "`fairlane_index_drift_total` in `/metrics` counts corrections.",
    "`fairlane doctor --only index-drift --wait 60`. If it comes back, another program writes "
    "to this Redis, or Redis lost data: look at its log.",
)
def index_drift(facts: Facts) -> Iterator[Diagnosis]:
    drift = facts[DriftFacts].drift
    kinds = (("missing", drift.missing), ("stale", drift.stale), ("misplaced", drift.different))
    wrong_jobs = sum(len(jobs) for _, jobs in kinds)
    if wrong_jobs:
        what = ", ".join(
            f"{len(jobs):,} {name} (such as {jobs[0]})" for name, jobs in kinds if jobs
        )
        text = f"ledger and index disagree: {what}"
        yield wrong(text, wrong_jobs, "fairlane doctor --only index-drift --wait 60", "queue")
    elif drift.is_complete:
        yield fine(f"ledger and index agree ({count(drift.queued, 'job')})", drift.queued)
    elif drift.queued == drift.indexed:
        text = f"ledger and index agree ({count(drift.queued, 'job')}, {drift.compared:,} compared)"
        yield fine(text, drift.queued)
    else:
        text = (
            f"the ledger counts {count(drift.queued, 'waiting job')}, the index {drift.indexed:,}, "
            f"and the time was enough to compare {drift.compared:,}"
        )
        command = "fairlane doctor --only index-drift"
        yield Diagnosis(FindingVerdict.UNKNOWN, text, "queue", f"{drift.compared:,}", command)


@check(
    "ledger-read-only",
    "stores",
    (LedgerFacts,),
    "The ledger accepts no writes: PostgreSQL is a replica or was made read-only, or the file "
    "cannot be written by this user. Submits are refused with 503.",
    f'`{PSQL} "{WHY_READ_ONLY}"`: `t` means a replica. `{PSQL} "SHOW '
    'default_transaction_read_only"`. `ls -l` of the ledger file.',
    "Replica: name the primary in `DATABASE_URL`. `default_transaction_read_only` is on: switch it "
    "off where it was set. Every new session of a database with `ALTER DATABASE … SET "
    "default_transaction_read_only = on` is read-only, so connect to another database of the same "
    'server to undo it: `psql -d postgres -c "ALTER DATABASE name RESET '
    'default_transaction_read_only"`. Sessions keep what they began with: restart the Fairlane '
    "processes. File: give it back to the user that runs the server.",
)
def ledger_read_only(facts: Facts) -> Iterator[Diagnosis]:
    server = facts[LedgerFacts].server
    name = _name(server.kind)
    if server.read_only and server.kind == "postgres":
        text = f"{name} accepts no writes: it is a replica, or default_transaction_read_only is on"
        yield wrong(text, "0 writes", f'{PSQL} "{WHY_READ_ONLY}"', server.kind)
    elif server.read_only:
        yield wrong(f"{name} accepts no writes", "0 writes", "fairlane doctor --pre", server.kind)
    else:
        text = f"{name} {server.version} accepts writes ({size(server.size_bytes)})"
        yield fine(text, size(server.size_bytes))


def _name(kind: str) -> str:
    return "PostgreSQL" if kind == "postgres" else "SQLite"


@check(
    "schema",
    "stores",
    (LedgerFacts,),
    "The schema of the ledger is not the one of this version.",
    "`fairlane version` prints the version of the program.",
    "`fairlane migrate` updates an older schema. A newer schema needs a newer Fairlane: "
    "see [upgrades](guides/upgrades.md).",
)
def schema(facts: Facts) -> Iterator[Diagnosis]:
    server = facts[LedgerFacts].server
    if server.schema == server.known_schema:
        yield fine(f"schema {server.schema}", server.schema)
    elif server.schema is None:
        text = "the ledger has no schema yet"
        if server.kind == "sqlite":
            yield fine("a new ledger will be made")
        else:
            yield wrong(text, "no schema", "fairlane migrate", server.kind)
    else:
        text = f"the ledger is at schema {server.schema}, this Fairlane knows {server.known_schema}"
        older = server.schema < server.known_schema
        say = warn if older and server.kind == "sqlite" else wrong
        yield say(
            text, server.schema, "fairlane migrate" if older else "fairlane version", server.kind
        )


@check(
    "postgres-durability",
    "stores",
    (LedgerFacts,),
    "PostgreSQL may lose committed jobs in a crash: `fsync`, `full_page_writes` or "
    "`synchronous_commit` is off. Fairlane refuses to start on such a server unless `unsafe` is "
    "set.",
    f'`{PSQL} "SHOW fsync"`, and the same for the others.',
    "Switch it on in the server's settings and reload them; `fsync` needs a restart of some "
    "hosted servers. Keep it off only where losing jobs is fine.",
)
def postgres_durability(facts: Facts) -> Iterator[Diagnosis]:
    server = facts[LedgerFacts].server
    if server.kind != "postgres":
        return
    off = [name for name, value in server.settings.items() if value == "off"]
    for name in off:
        text = f"{name} is off: a crash may lose accepted jobs"
        command = f'{PSQL} "ALTER SYSTEM SET {name} = on" -c "SELECT pg_reload_conf()"'
        yield wrong(text, f"{name} = off", command, "postgres")
    if not off:
        yield fine("PostgreSQL commits durably")


@check(
    "postgres-connections",
    "stores",
    (LedgerFacts,),
    "PostgreSQL has few connections left. A process that gets none answers 503.",
    f'`{PSQL} "{CONNECTIONS}"`',
    "Raise `max_connections`, or end programs that hold idle connections. A Fairlane process "
    "uses up to a dozen.",
)
def postgres_connections(facts: Facts) -> Iterator[Diagnosis]:
    server = facts[LedgerFacts].server
    if server.connections is None or not server.max_connections:
        return
    used = server.connections / server.max_connections
    text = f"{server.connections} of {server.max_connections} connections to PostgreSQL in use"
    if used < NEARLY_FULL:
        yield fine(text, server.connections)
    else:
        say = wrong if used >= FULL else warn
        yield say(text, share(used, 1), f'{PSQL} "{CONNECTIONS}"', "postgres")


@check(
    "postgres-vacuum",
    "stores",
    (LedgerFacts,),
    "Many deleted rows wait to be cleaned up, or an old transaction keeps PostgreSQL from "
    "cleaning up. Queries become slower with time.",
    f'`{PSQL} "{TRANSACTIONS}"`',
    "End the transaction that the query shows first, if it is forgotten. Check that autovacuum "
    "is on.",
)
def postgres_vacuum(facts: Facts) -> Iterator[Diagnosis]:
    signs = facts[LedgerFacts].signs
    if signs.dead is None:
        return
    rows, age = sum(signs.dead.values()), signs.oldest_transaction or 0
    if age > OLD_TRANSACTION_MICROSECONDS:
        text = f"a transaction is open since {lasts(age)} and keeps old rows"
        yield warn(text, lasts(age), f'{PSQL} "{TRANSACTIONS}"', "postgres")
    if rows > MANY_DEAD_ROWS:
        text = f"{count(rows, 'deleted row')} not cleaned up yet"
        yield warn(text, rows, f'{PSQL} "VACUUM (ANALYZE)"', "postgres")
    elif age <= OLD_TRANSACTION_MICROSECONDS:
        yield fine("PostgreSQL cleans up in time", rows)


@check(
    "redis-eviction",
    "stores",
    (IndexFacts,),
    "Redis may delete keys when its memory is full. Parts of the index would be lost and "
    "rebuilt again and again.",
    f"`{REDIS_CLI} CONFIG GET maxmemory-policy`",
    "Set `maxmemory-policy noeviction`, also in the server's settings file, and give the index "
    "a Redis of its own if another program needs eviction.",
)
def redis_eviction(facts: Facts) -> Iterator[Diagnosis]:
    server = facts[IndexFacts].state.server
    if server is None:
        return
    if server.eviction_policy in ("", "noeviction"):
        yield fine(f"Redis evicts nothing ({server.version})", server.eviction_policy)
    else:
        text = f"Redis may delete the index: its maxmemory-policy is {server.eviction_policy}"
        command = f"{REDIS_CLI} CONFIG SET maxmemory-policy noeviction"
        yield wrong(text, server.eviction_policy, command, "redis")


@check(
    "redis-writes",
    "stores",
    (IndexFacts,),
    "Redis accepts no writes, so no job starts. The finding says why: a read-only replica, a "
    "snapshot or an append-only file that cannot be written, full memory. The index needs no "
    "persistence: it is rebuilt from the ledger.",
    f"`{REDIS_CLI} INFO memory`, `{REDIS_CLI} INFO persistence` and `{REDIS_CLI} INFO replication`",
    f"Full memory: raise `maxmemory` with `{REDIS_CLI} CONFIG SET maxmemory BYTES`, also in the "
    "server's settings file. A file that cannot be written: make room on the disk of Redis, or "
    f"switch persistence off with `{REDIS_CLI} CONFIG SET save ''`. A replica: name the primary in "
    "`REDIS_URL`.",
)
def redis_writes(facts: Facts) -> Iterator[Diagnosis]:
    server = facts[IndexFacts].state.server
    if server is None:
        return
    if not server.refuses_writes:
        yield fine("Redis accepts writes")
        return
    text = f"Redis accepts no writes: {server.refuses_writes}"
    if server.memory_is_full:
        text += "; raise maxmemory"
        command = f"{REDIS_CLI} CONFIG SET maxmemory {2 * server.max_bytes}"
    else:
        command = f"{REDIS_CLI} INFO"
    yield wrong(text, "0 writes", command, "redis")


@check(
    "redis-memory",
    "stores",
    (IndexFacts,),
    "The memory or the connections of Redis are nearly used up.",
    f"`{REDIS_CLI} INFO memory` and `{REDIS_CLI} INFO clients`",
    "Raise `maxmemory` or `maxclients`. 100,000 waiting jobs need about 25 MB.",
)
def redis_memory(facts: Facts) -> Iterator[Diagnosis]:
    server = facts[IndexFacts].state.server
    if server is None:
        return
    used = server.used_bytes / server.max_bytes if server.max_bytes else 0
    most = f" of {size(server.max_bytes)}" if server.max_bytes else ""
    text = f"Redis uses {size(server.used_bytes)}{most}"
    if used >= NEARLY_FULL:
        yield warn(text, share(used, 1), f"{REDIS_CLI} INFO memory", "redis")
    else:
        yield fine(text, size(server.used_bytes))
    if server.max_connections and server.connections >= NEARLY_FULL * server.max_connections:
        text = f"{server.connections} of {server.max_connections} connections to Redis in use"
        figure = share(server.connections, server.max_connections)
        yield warn(text, figure, f"{REDIS_CLI} INFO clients", "redis")


@check(
    "disk-space",
    "stores",
    (LedgerFacts,),
    "The disk of the embedded ledger is nearly full. On a full disk submits are refused with "
    "503; nothing is lost.",
    "`df -h` of the data folder.",
    "Make room, or keep finished jobs for a shorter time (`keep_finished`). The disk of a "
    "PostgreSQL server cannot be seen from here: watch it there.",
)
def disk_space(facts: Facts) -> Iterator[Diagnosis]:
    server = facts[LedgerFacts].server
    if server.free_bytes is None or not server.disk_bytes:
        return
    free = server.free_bytes / server.disk_bytes
    text = f"{size(server.free_bytes)} free on the disk of the ledger ({share(free, 1)})"
    if server.free_bytes < MIN_FREE_BYTES:
        yield wrong(text, size(server.free_bytes), "df -h .", "disk")
    elif free < MIN_FREE_SHARE:
        yield warn(text, share(free, 1), "df -h .", "disk")
    else:
        yield fine(text, size(server.free_bytes))


@check(
    "retention-behind",
    "stores",
    (RetentionFacts,),
    "Ended jobs are kept longer than the settings say. The ledger grows.",
    "`keep_finished` and `keep_dead` in the settings; `fairlane jobs list` of the oldest.",
    "Retention deletes up to 1,000 jobs a second and catches up by itself after a flood. If it "
    "does not, look for `sweep: _retire_all` in the log.",
)
def retention_behind(facts: Facts) -> Iterator[Diagnosis]:
    found = facts[RetentionFacts]
    if found.overdue:
        more = "at least " if found.overdue >= found.limit else ""
        text = f"{more}{count(found.overdue, 'ended job')} should have been deleted"
        yield warn(
            text, found.overdue, "fairlane doctor --only retention-behind --wait 120", "ledger"
        )
    else:
        yield fine("retention keeps up")


@check(
    "credits",
    "stores",
    (InvariantFacts,),
    "The bookings of an operation do not sum to zero, or a balance is not the sum of its bookings.",
    "`fairlane users statement USER` lists the bookings of a user.",
    "Bookings are written together in one transaction and never changed, so rows were changed "
    "by hand or a backup was restored in part. Compare with a backup before you book a "
    "correction with `fairlane users add-credits USER N`.",
)
def credits_balance(facts: Facts) -> Iterator[Diagnosis]:
    counts = facts[InvariantFacts].counts
    found = counts.unbalanced_operations + counts.wrong_balances
    if found:
        text = (
            f"{count(counts.unbalanced_operations, 'credit operation')} and "
            f"{count(counts.wrong_balances, 'balance')} with a wrong sum"
        )
        yield wrong(text, found, "fairlane doctor --only credits", "credits")
    else:
        yield fine("credits add up")


@check(
    "fan-outs",
    "stores",
    (InvariantFacts,),
    "A fan-out counts another number of open executions than it has, or a job is missing in the "
    "lists of the ledger. Such a job may not end, or may not be found.",
    "`fairlane jobs show JOB` of the fan-out.",
    "Counts and jobs are written together, so rows were changed by hand or a backup was "
    "restored in part. Restore the whole backup.",
)
def fan_outs(facts: Facts) -> Iterator[Diagnosis]:
    counts = facts[InvariantFacts].counts
    found = counts.stuck_parents + counts.unlisted
    if found:
        text = (
            f"{count(counts.stuck_parents, 'fan-out')} with a wrong count, "
            f"{count(counts.unlisted, 'job')} in no list"
        )
        yield wrong(text, found, "fairlane doctor --only fan-outs", "ledger")
    else:
        yield fine("fan-outs and job lists are complete")


@check(
    "clock-skew",
    "stores",
    (Here,),
    "This machine's clock differs from the time of the queue, which all processes share. Leases "
    "and order do not depend on it. Times in logs and in the expiry of keys do.",
    "`fairlane_clock_offset_seconds` in `/metrics`; `timedatectl` on the machine.",
    "Switch on time synchronisation (NTP, chrony) on this machine and on that of PostgreSQL.",
)
def clock_skew(facts: Facts) -> Iterator[Diagnosis]:
    here = facts[Here]
    ahead = here.wall_clock - here.now
    text = (
        f"this machine is {lasts(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} the "
        "queue's time"
    )
    if abs(ahead) > LARGE_SKEW_MICROSECONDS:
        yield wrong(text, lasts(abs(ahead)), "timedatectl", "clock")
    elif abs(ahead) > SKEW_MICROSECONDS:
        yield warn(text, lasts(abs(ahead)), "timedatectl", "clock")
    else:
        yield fine("clocks agree", f"{abs(ahead) // 1000} ms")


CHECKS = (
    ledger_read_only,
    index_ready,
    redis_writes,
    redis_memory,
    redis_eviction,
    index_drift,
    schema,
    postgres_durability,
    postgres_connections,
    postgres_vacuum,
    disk_space,
    retention_behind,
    credits_balance,
    fan_outs,
    clock_skew,
)
