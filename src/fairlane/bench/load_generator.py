"""An open-loop load generator in a process of its own: `python -m fairlane.bench.load_generator`.
It reads a plan from its input and writes the outcome to its output. Plain sockets and requests
made before, so that one core offers far more than a server can take.

Open loop: a request is due at a fixed time, whatever became of those before, and its latency
counts from then. A request that is due while every connection waits for an answer is not sent
later, as its caller would have a connection of its own: it counts as `unsent`."""

from __future__ import annotations

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

KINDS = USERS * len(NAMES)
ANSWER_TIMEOUT_SECONDS = 30.0
"""Seconds after which an answer that has not come is a hang."""

POLL_SECONDS = 0.001
"""Seconds between two looks at what has come. Nobody waits in the kernel for it: a server on the
same machine would be charged for waking somebody up with every answer it sends."""


@dataclass
class Plan:
    """`rate` 0: closed loop, every connection sends when it has its answer."""

    port: int
    rate: float
    seconds: float
    connections: int
    ids: int = 0
    """How many jobs' ids are wanted back."""


@dataclass
class Took:
    """How many, and milliseconds."""

    number: int = 0
    p50: float = 0.0
    p99: float = 0.0
    worst: float = 0.0


@dataclass
class LoadOutcome:
    """`wrong`: another answer, a reset, a hang. `late`: the worst delay of the sender itself,
    milliseconds; `cpu`: the part of a core that it took."""

    seconds: float
    accepted: Took
    refused: Took
    tiers: dict[str, int]
    wrong: int
    unsent: int
    late: float
    cpu: float
    jobs: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, text: bytes) -> LoadOutcome:
        """What the process has written."""
        found = orjson.loads(text)
        for name in ("accepted", "refused"):
            found[name] = Took(**found[name])
        return cls(**found)

    @property
    def goodput(self) -> float:
        return self.accepted.number / self.seconds

    @property
    def sent(self) -> float:
        return (self.accepted.number + self.refused.number + self.wrong) / self.seconds


class LoadCaller:
    """A connection, and the request it waits for."""

    __slots__ = ("due", "got", "socket", "tier")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(0)
        self.due, self.tier, self.got = 0.0, 0, b""


class Generator:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._requests = [post("/api/v1/jobs", job(i)) for i in range(KINDS)]
        self._callers = {one.socket.fileno(): one for one in _connected(plan)}
        self._free = deque(self._callers.values())
        self._accepted, self._refused = array("d"), array("d")
        self._tiers = [0] * len(NAMES)
        self._jobs: list[str] = []
        self._number = self._wrong = self._unsent = 0
        self._late = 0.0

    def run(self) -> LoadOutcome:
        poll = select.epoll()
        for number in self._callers:
            poll.register(number, select.EPOLLIN)
        used = time.process_time()
        begin = time.perf_counter()
        passed, plan = 0.0, self._plan
        while passed < plan.seconds:
            self._send(passed)
            time.sleep(POLL_SECONDS)  # noqa: TID251 - nothing else happens in this process
            for number, _ in poll.poll(0):
                self._hear(self._callers[number], begin)
            passed = time.perf_counter() - begin
        used = time.process_time() - used
        while (
            len(self._free) < len(self._callers) and passed < plan.seconds + ANSWER_TIMEOUT_SECONDS
        ):
            for number, _ in poll.poll(ANSWER_TIMEOUT_SECONDS):
                self._hear(self._callers[number], begin)
            passed = time.perf_counter() - begin
        return LoadOutcome(
            plan.seconds,
            _took(self._accepted),
            _took(self._refused),
            dict(zip(NAMES, self._tiers, strict=True)),
            self._wrong + len(self._callers) - len(self._free),
            self._unsent,
            self._late * 1000,
            used / plan.seconds,
            self._jobs,
        )

    def _send(self, passed: float) -> None:
        """What is due by now."""
        rate, free = self._plan.rate, self._free
        if not rate:
            while free:
                self._ask(free.popleft(), passed)
            return
        self._late = max(self._late, passed - self._number / rate)
        due = int(passed * rate) + 1 - self._number
        for _ in range(min(due, len(free))):
            self._ask(free.popleft(), self._number / rate)
        if due > 0 and not free:
            now_due = int(passed * rate) + 1
            self._unsent += now_due - self._number
            self._number = now_due

    def _ask(self, caller: LoadCaller, due: float) -> None:
        kind = self._number % KINDS
        self._number += 1
        caller.due, caller.tier = due, kind % len(NAMES)
        try:
            caller.socket.send(self._requests[kind])
        except OSError:
            self._lose(caller)

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
        self._free.append(caller)

    def _lose(self, caller: LoadCaller) -> None:
        """Cut off: one answer less, and one connection less."""
        self._wrong += 1
        if caller in self._free:
            self._free.remove(caller)
        del self._callers[caller.socket.fileno()]
        caller.socket.close()


def _connected(plan: Plan) -> list[LoadCaller]:
    return [LoadCaller(plan.port) for _ in range(plan.connections)]


def _took(values: array[float]) -> Took:
    if not values:
        return Took()
    ranked = sorted(values)
    return Took(len(ranked), ranked[len(ranked) // 2], ranked[len(ranked) * 99 // 100], ranked[-1])


if __name__ == "__main__":
    plan = Plan(**orjson.loads(sys.stdin.buffer.read()))
    sys.stdout.buffer.write(orjson.dumps(asdict(Generator(plan).run())))
