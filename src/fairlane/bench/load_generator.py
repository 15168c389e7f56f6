"""An open-loop load generator in a separate process: `python -m fairlane.bench.load_generator`.
It reads a plan from standard input and writes the outcome to standard output. It uses plain sockets
and prepared requests, so that one core offers far more load than a server can take.

Open loop: arrivals are a Poisson process. A request is due at its scheduled time, whether or not
earlier requests are answered, and its latency counts from then (no coordinated omission). It takes
an idle connection, or opens another one up to the plan's bound. A request is not sent late if every
connection waits for an answer or the generator is too slow: it counts as `unsent`, and the outcome
says how many requests were really sent."""

from __future__ import annotations

import random
import resource
import select
import socket
import sys
import time
from array import array
from collections import deque
from dataclasses import asdict, dataclass, field

import orjson

from fairlane.bench.http_client import HOST, job, post
from fairlane.bench.measure import NAMES, USERS
from fairlane.bench.percentiles import p50_and_p99

KINDS = USERS * len(NAMES)
ANSWER_TIMEOUT_SECONDS = 30.0
"""Seconds after which a missing answer counts as a hang."""

POLL_SECONDS = 0.001
"""Seconds between two polls for answers. The generator does not block in the kernel: a server on
the same machine would spend CPU time on waking it with every answer."""

LATE_SECONDS = 0.005
"""A request that is sent later than this after its scheduled time is a late send."""

MAX_LATE_SECONDS = 0.02
"""A request that is due for longer than this is not sent."""

OPENED_PER_POLL = 20
"""Most new connections between two polls: a server accepts connections one by one."""


@dataclass
class Plan:
    """The load to generate. `rate`: requests per second; 0 = closed loop, where every connection
    sends its next request after an answer. `connections`: most open connections."""

    port: int
    rate: float
    seconds: float
    connections: int
    ids: int = 0
    """How many ids of accepted jobs the outcome contains."""


@dataclass
class Took:
    """Number of requests, and their latency in milliseconds."""

    number: int = 0
    p50: float = 0.0
    p99: float = 0.0
    worst: float = 0.0


@dataclass
class LoadOutcome:
    """The outcome of a load. `wrong`: unexpected answers and hangs. `errors`: connections that were
    refused, reset or closed before their answer. `late`: requests sent more than 5 ms after their
    scheduled time. `cpu`: the share of one core that the generator used."""

    seconds: float
    accepted: Took
    refused: Took
    tiers: dict[str, int]
    due: int
    sent: int
    unsent: int
    late: int
    wrong: int
    errors: int
    connections: int
    cpu: float
    jobs: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, text: bytes) -> LoadOutcome:
        """Parse the output of the generator process."""
        found = orjson.loads(text)
        for name in ("accepted", "refused"):
            found[name] = Took(**found[name])
        return cls(**found)

    @property
    def goodput(self) -> float:
        return self.accepted.number / self.seconds


class LoadCaller:
    """One connection, and the request whose answer it waits for."""

    __slots__ = ("due", "got", "socket", "tier", "unwritten")

    def __init__(self, port: int) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(0)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due, self.tier, self.got, self.unwritten = 0.0, 0, b"", b""
        self.socket.connect_ex((HOST, port))

    def write(self, request: bytes) -> bool:
        """Send a request. Returns whether all of it is sent: a connection that is not yet open
        sends it later."""
        try:
            self.unwritten = request[self.socket.send(request) :]
        except BlockingIOError:
            self.unwritten = request
        return not self.unwritten


class Generator:
    def __init__(self, plan: Plan) -> None:
        self._plan, self._poll, self._chance = plan, select.epoll(), random.Random(1)
        self._requests = [post("/api/v1/jobs", job(i)) for i in range(KINDS)]
        self._callers: dict[int, LoadCaller] = {}
        self._free = deque[LoadCaller]()
        self._accepted, self._refused = array("d"), array("d")
        self._tiers = [0] * len(NAMES)
        self._jobs: list[str] = []
        self._next = 0.0
        self._due = self._sent = self._unsent = self._late = self._wrong = self._errors = 0
        self._most_open = 0

    def run(self) -> LoadOutcome:
        if not self._plan.rate:
            self._free.extend(self._open() for _ in range(self._plan.connections))
        used = time.process_time()
        begin = time.perf_counter()
        passed, plan = 0.0, self._plan
        while passed < plan.seconds:
            self._send(passed)
            time.sleep(POLL_SECONDS)  # noqa: TID251 - nothing else happens in this process
            self._look(0, begin)
            passed = time.perf_counter() - begin
        used = time.process_time() - used
        while (
            len(self._free) < len(self._callers) and passed < plan.seconds + ANSWER_TIMEOUT_SECONDS
        ):
            self._look(ANSWER_TIMEOUT_SECONDS, begin)
            passed = time.perf_counter() - begin
        return LoadOutcome(
            plan.seconds,
            _took(self._accepted),
            _took(self._refused),
            dict(zip(NAMES, self._tiers, strict=True)),
            self._due,
            self._sent,
            self._unsent,
            self._late,
            self._wrong + len(self._callers) - len(self._free),
            self._errors,
            self._most_open,
            used / plan.seconds,
            self._jobs,
        )

    # --- sending ---------------------------------------------------------------------------------
    def _send(self, passed: float) -> None:
        """Send the requests that are due."""
        if not self._plan.rate:
            while self._free:
                self._due += 1
                self._ask(self._free.popleft(), passed)
            return
        may_open = OPENED_PER_POLL
        while self._next <= passed:
            due, self._next = self._next, self._next + self._chance.expovariate(self._plan.rate)
            self._due += 1
            lateness = passed - due
            if lateness > MAX_LATE_SECONDS:
                self._unsent += 1
            elif self._free:
                self._late += lateness > LATE_SECONDS
                self._ask(self._free.pop(), due)
            elif may_open and len(self._callers) < self._plan.connections:
                may_open -= 1
                self._late += lateness > LATE_SECONDS
                self._ask(self._open(), due)
            else:
                self._unsent += 1

    def _open(self) -> LoadCaller:
        caller = LoadCaller(self._plan.port)
        number = caller.socket.fileno()
        self._callers[number] = caller
        self._most_open = max(self._most_open, len(self._callers))
        self._poll.register(number, select.EPOLLIN)
        return caller

    def _ask(self, caller: LoadCaller, due: float) -> None:
        kind = self._due % KINDS
        caller.due, caller.tier = due, kind % len(NAMES)
        self._sent += 1
        try:
            if not caller.write(self._requests[kind]):
                self._poll.modify(caller.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)
        except OSError:
            self._lose(caller)

    # --- answers ---------------------------------------------------------------------------------
    def _look(self, seconds: float, begin: float) -> None:
        for number, event in self._poll.poll(seconds, self._plan.connections):
            caller = self._callers[number]
            if event & select.EPOLLOUT:
                self._write_rest(caller)
            if event & ~select.EPOLLOUT:
                self._hear(caller, begin)

    def _write_rest(self, caller: LoadCaller) -> None:
        try:
            if caller.write(caller.unwritten):
                self._poll.modify(caller.socket.fileno(), select.EPOLLIN)
        except OSError:
            pass  # the error event of the same poll reports it

    def _hear(self, caller: LoadCaller, begin: float) -> None:
        try:
            data = caller.socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._lose(caller)
            return
        if caller.got:
            data = caller.got + data
        head, found, body = data.partition(b"\r\n\r\n")
        start = head.find(b"content-length: ") + 16
        if not found or len(body) < int(head[start : start + 8].split(b"\r", 1)[0]):
            caller.got = data
            return
        caller.got = b""
        took = (time.perf_counter() - begin - caller.due) * 1000
        status = head[9:12]
        if status == b"202":
            self._accepted.append(took)
            self._tiers[caller.tier] += 1
            if len(self._jobs) < self._plan.ids:
                self._jobs.append(orjson.loads(body)["job_id"])
        elif status in (b"503", b"429") and b"retry-after: " in head:
            self._refused.append(took)
        else:
            self._wrong += 1
        if b"connection: close" in head:
            self._drop(caller)
        else:
            self._free.append(caller)

    def _lose(self, caller: LoadCaller) -> None:
        """Handle a closed connection: it counts as an error if it waited for an answer."""
        if caller in self._free:
            self._free.remove(caller)
        else:
            self._errors += 1
        self._drop(caller)

    def _drop(self, caller: LoadCaller) -> None:
        del self._callers[caller.socket.fileno()]
        caller.socket.close()


def _took(values: array[float]) -> Took:
    if not values:
        return Took()
    p50, p99 = p50_and_p99(values)
    return Took(len(values), p50, p99, max(values))


def _allow_connections(number: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * number), hard))


if __name__ == "__main__":
    plan = Plan(**orjson.loads(sys.stdin.buffer.read()))
    _allow_connections(plan.connections)
    sys.stdout.buffer.write(orjson.dumps(asdict(Generator(plan).run())))
