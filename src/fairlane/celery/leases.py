"""Load leases of Celery queues, in Redis: one lease per published message, pending or running. A
queue's load is the number of its leases."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from fairlane.celery.options import Options
from fairlane.celery.scripts import script
from fairlane.errors import StoreAway

log = logging.getLogger("fairlane.celery")

SOCKET_TIMEOUT_SECONDS = 1.0
MAX_CONNECTIONS = 32
"""Connections of one process. Further threads wait for one of them."""

PAUSE_SECONDS = 1.0
"""After an error the store is not asked for this long: a publish must not wait for it each time."""

SCRIPT_STEP = 200
"""Leases that one script call changes: some milliseconds of Redis."""

CONFIGURE_ATTEMPTS = 3
"""While a new list of queues is rolled out, two versions of an app configure the store in turn."""

MISSED_HEARTBEATS = 3
"""A worker that misses this many heartbeats is dead."""


T = TypeVar("T")

Argument = str | bytes | float
"""What a script takes."""


class Load(NamedTuple):
    pending: int
    running: int


def new_nonce() -> str:
    """Names one publication. Random, so that forked processes do not repeat each other."""
    return os.urandom(8).hex()


def lease_of(queue: str, nonce: str) -> str:
    return f"{queue}|{nonce}"


class LeaseStore:
    """The verbs of the store. Each may raise StoreAway and nothing else: then nothing was counted,
    and the reconciler counts later."""

    def __init__(self, options: Options, connect: Callable[[], Any]) -> None:
        self.options = options
        self._connect = connect
        self._clients: dict[int, Any] = {}
        self._away_until = 0.0
        self._version, self._weighted = options.version, str(int(options.weights))

    # --- publishing ------------------------------------------------------------------------------
    def reserve(self, task: str, nonces: Sequence[str], returned: Iterable[str] = ()) -> list[str]:
        """Takes a lease per nonce, each on the queue that is then least loaded. Gives leases of
        failed publishes back in the same step."""
        queues: list[str] = []
        for step in _steps(nonces):
            queues += self._reserve(task, step, returned)
            returned = ()
        return queues

    def _reserve(self, task: str, nonces: Sequence[str], returned: Iterable[str]) -> list[str]:
        sent = [self._version, task, self._weighted, str(len(nonces)), *nonces, *returned]
        for _ in range(CONFIGURE_ATTEMPTS):
            found = self._run("reserve", *sent)
            if found is not None:
                return [queue.decode() for queue in found]
            self.configure()
        raise StoreAway("another app with the same key_prefix configures other queues")

    def give_back(self, leases: Sequence[str]) -> None:
        """Ends leases that were reserved and not used."""
        for step in _steps(leases):
            self._run("give_back", *step)

    def configure(self) -> None:
        self._run("configure", self._version, self._weighted, *self.options.queues)

    def register(self, lease: str, task: str, returned: Iterable[str] = ()) -> None:
        """Takes a lease on a queue that the caller of `apply_async` chose."""
        self._run("register", lease, task, self._weighted, *returned)

    # --- running ---------------------------------------------------------------------------------
    def start(self, lease: str, worker: str) -> None:
        self._run("start", lease, worker)

    def finish(self, lease: str, task: str = "", seconds: float = 0) -> None:
        self._run("finish", lease, task, int(seconds * 1000) if self.options.weights else 0)

    def requeue(self, *leases: str) -> None:
        """These no longer run; their messages may wait again."""
        for step in _steps(leases):
            self._run("requeue", *step)

    # --- reconciling -----------------------------------------------------------------------------
    def drop(self, leases: Mapping[str, float]) -> int:
        """Drops pending leases, unless they changed since they had this score. Returns how many."""
        dropped = 0
        for step in _steps([*leases.items()]):
            sent = [part for lease, score in step for part in (lease, repr(score))]
            dropped += int(self._run("drop", *sent))
        return dropped

    def adopt(self, leases: Iterable[str], worker: str = "") -> int:
        """Counts messages that have no lease, or tasks that this worker runs. Returns how many."""
        return sum(int(self._run("adopt", worker, *step)) for step in _steps([*leases]))

    def forget(self, queues: Iterable[str]) -> None:
        self._run("forget", *queues)

    def pending(self, queue: str) -> dict[str, float]:
        """The pending leases of a queue and when they were taken."""
        return self._scores(f"pending:{queue}", queue)

    def running(self, queue: str) -> dict[str, float]:
        return self._scores(f"running:{queue}", queue)

    def _scores(self, name: str, queue: str) -> dict[str, float]:
        found = self.call(lambda client: client.zrange(self.key(name), 0, -1, withscores=True))
        return {lease_of(queue, nonce.decode()): score for nonce, score in found}

    def owners(self) -> dict[str, str]:
        """The worker of each running nonce."""
        found = self.call(lambda client: client.hgetall(self.key("owners")))
        return {nonce.decode(): worker.decode() for nonce, worker in found.items()}

    def heartbeat(self, worker: str) -> None:
        self.call(lambda client: client.zadd(self.key("workers"), {worker: self._now(client)}))

    def leave(self, worker: str) -> None:
        self.call(lambda client: client.zrem(self.key("workers"), worker))

    def workers(self) -> dict[str, float]:
        """The known workers and how many seconds ago each sent a heartbeat."""

        def ages(client: Any) -> dict[str, float]:
            now = self._now(client)
            found = client.zrange(self.key("workers"), 0, -1, withscores=True)
            return {worker.decode(): now - at for worker, at in found}

        ages_by_worker: dict[str, float] = self.call(ages)
        return ages_by_worker

    def live_workers(self) -> set[str]:
        limit = self.options.heartbeat_seconds * MISSED_HEARTBEATS
        return {worker for worker, age in self.workers().items() if age <= limit}

    def now(self) -> float:
        return float(self.call(self._now))

    # --- reading ---------------------------------------------------------------------------------
    def queues(self) -> list[str]:
        """The configured queues in the order of their index."""
        found = self.call(lambda client: client.zrange(self.key("load"), 0, -1, withscores=True))
        return [queue.decode() for queue, score in sorted(found, key=lambda each: each[1] % 1)]

    def loads(self, queues: Sequence[str]) -> dict[str, Load]:
        def counted(client: Any) -> list[int]:
            pipe = client.pipeline()
            for queue in queues:
                pipe.zcard(self.key(f"pending:{queue}"))
                pipe.zcard(self.key(f"running:{queue}"))
            return list(pipe.execute())

        found = self.call(counted)
        return {queue: Load(*found[2 * n : 2 * n + 2]) for n, queue in enumerate(queues)}

    def peek(self) -> str | None:
        """The queue that the next reservation would get."""
        found = self.call(lambda client: client.zrange(self.key("load"), 0, 0))
        return found[0].decode() if found else None

    # --- the client ------------------------------------------------------------------------------
    def key(self, name: str) -> str:
        return self.options.key_prefix + name

    def _now(self, client: Any) -> float:
        seconds, micros = client.time()
        return float(seconds + micros / 1_000_000)

    def _run(self, verb: str, *args: Argument) -> Any:
        return self.call(lambda client: run_script(client, verb, self.options.key_prefix, *args))

    def call(self, work: Callable[[Any], Any]) -> Any:
        """Does the work with this process's client. Every error becomes StoreAway."""
        if self._away_until and time.monotonic() < self._away_until:
            raise StoreAway("the lease store did not answer a moment ago")
        try:
            answer = work(self._client())
        except Exception as error:
            if not self._away_until:
                log.warning("the lease store of Celery queues does not answer: %s", error)
            self._away_until = time.monotonic() + PAUSE_SECONDS
            raise StoreAway(str(error)) from error
        self._away_until = 0.0
        return answer

    def close(self) -> None:
        """Closes the client of this process. The next verb opens another one."""
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()

    def _client(self) -> Any:
        """One client per process: a forked child never uses the sockets of its parent."""
        pid = os.getpid()
        client = self._clients.get(pid)
        if client is None:
            client = self._clients.setdefault(pid, self._connect())
        return client


def _steps(leases: Sequence[T]) -> Iterator[Sequence[T]]:
    """In parts, so that no script keeps Redis from its other clients for long."""
    for first in range(0, len(leases), SCRIPT_STEP):
        yield leases[first : first + SCRIPT_STEP]


def run_script(client: Any, verb: str, prefix: str, *args: Argument) -> Any:
    """Runs a script by its digest; a server that has not seen it, or has restarted, gets it."""
    known = script(verb)
    try:
        return client.evalsha(known.digest, 1, prefix, *args)
    except NoScriptError:
        return client.eval(known.text, 1, prefix, *args)


def connect_to(url: str) -> Any:
    """A client that answers or fails within about a second and never repeats a command."""
    pool = redis.BlockingConnectionPool.from_url(
        url,
        max_connections=MAX_CONNECTIONS,
        timeout=SOCKET_TIMEOUT_SECONDS,
        socket_timeout=SOCKET_TIMEOUT_SECONDS,
        socket_connect_timeout=SOCKET_TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )
    return redis.Redis.from_pool(pool)
