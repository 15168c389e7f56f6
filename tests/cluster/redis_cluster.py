"""A Redis Cluster of three primaries, and a replica of the one that has the index."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from random import sample

from redis.crc import key_slot

from fairlane.index.redis.keys import KEY_PREFIX
from fairlane.servers import Redis
from fairlane.servers.process import ServerFailed, ask

SLOTS = 16_384
NODE_TIMEOUT_MS = 1_000
LONG_ENOUGH = 60.0


class ClusterNode(Redis):
    def __init__(self) -> None:
        super().__init__()
        self.bus_port = _free_bus_port()

    def _command(self) -> list[str]:
        options = {
            "cluster-enabled": "yes",
            "cluster-port": self.bus_port,
            "cluster-node-timeout": NODE_TIMEOUT_MS,
        }
        return [
            *super()._command(),
            *(part for key, value in options.items() for part in (f"--{key}", str(value))),
        ]

    def says(self, *words: object) -> str:
        return ask(self.port, (" ".join(map(str, words)) + "\r\n").encode()).decode()

    def until(self, text: str, *words: object) -> None:
        """Asks until the answer has the text: the nodes tell each other what they know."""
        deadline = time.monotonic() + LONG_ENOUGH
        while text not in self.says(*words):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{words} does not say {text}: {self.says(*words)}")
            time.sleep(0.02)  # noqa: TID251 - another process has to act

    @property
    def node_id(self) -> str:
        return self.says("CLUSTER", "MYID").splitlines()[1].strip()


class RedisCluster:
    def __init__(self, primaries: list[ClusterNode], replica: ClusterNode) -> None:
        self.primaries, self.replica = primaries, replica
        self.owner = primaries[key_slot(KEY_PREFIX.encode()) * len(primaries) // SLOTS]

    @property
    def url(self) -> str:
        """The nodes without the index come first: they have to be asked for it."""
        others = [each for each in self.primaries if each is not self.owner]
        return "redis+cluster://" + ",".join(
            f"127.0.0.1:{each.port}" for each in (*others, self.owner)
        )


@contextmanager
def redis_cluster() -> Iterator[RedisCluster]:
    with ExitStack() as stack:
        *primaries, replica = (stack.enter_context(ClusterNode()) for _ in range(4))
        for n, node in enumerate(primaries):
            first, end = (SLOTS * part // len(primaries) for part in (n, n + 1))
            node.says("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            node.says("CONFIG", "SET", "cluster-allow-replica-migration", "no")
        first_node = primaries[0]
        for node in (*primaries[1:], replica):
            node.says("CLUSTER", "MEET", "127.0.0.1", first_node.port, first_node.bus_port)
        for node in (*primaries, replica):
            node.until("cluster_known_nodes:4", "CLUSTER", "INFO")
            node.until("cluster_state:ok", "CLUSTER", "INFO")
        found = RedisCluster(primaries, replica)
        replica.says("CLUSTER", "REPLICATE", found.owner.node_id)
        replica.until("master_link_status:up", "INFO", "replication")
        for node in primaries:  # its votes count only when all know whose replica it is
            node.until("slave " + found.owner.node_id, "CLUSTER", "NODES")
        yield found


def _free_bus_port() -> int:
    """Above the ports of test servers, below the kernel's range for clients."""
    for port in sample(range(30_000, 32_700), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerFailed("tried 100 ports, none is free")
