"""Free TCP ports on the loopback address; those of a broker are in `rmq_testing.ports`."""

from __future__ import annotations

from rmq_testing.ports import LOOPBACK, free_base, free_broker_port, free_port

__all__ = ["LOOPBACK", "free_broker_port", "free_port", "free_shards_port"]


def free_shards_port(count: int) -> int:
    """A `listenPort` for the first of several shards: all their ports are free."""
    return free_base(tuple(offset for number in range(count) for offset in _shard_offsets(number)))


def _shard_offsets(number: int) -> tuple[int, ...]:
    # Of each shard the fast port, listenPort, the HA port and the port of metrics (docs/deployment.md).
    return tuple(10 * number + offset for offset in (-2, 0, 1, 2))
