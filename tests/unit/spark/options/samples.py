"""Minimal options for reading and writing, and functions that parse options for each mode."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_rocketmq.options import Mode, ReadOptions, WriteOptions

NAME_SERVERS = {"rocketmq.namesrv.addr": "127.0.0.1:9876"}
READING = {**NAME_SERVERS, "subscribe": "orders"}
WRITING = {**NAME_SERVERS, "topic": "orders"}


def batch(**options: str) -> ReadOptions:
    """Parse options of a batch read of the topic orders."""
    return ReadOptions.for_batch({**READING, **options})


def stream(**options: str) -> ReadOptions:
    """Parse options of a stream from the topic orders."""
    return ReadOptions.for_stream({**READING, **options})


def write(**options: str) -> WriteOptions:
    """Parse options of a batch write."""
    return WriteOptions.for_batch({**NAME_SERVERS, **options})


def base_for(name: str) -> Mapping[str, str]:
    """Return the options that reading needs besides the option of this name."""
    if name in ("subscribe", "subscribePattern", "assign"):
        return NAME_SERVERS
    return {key: text for key, text in READING.items() if key != name}


def mode_of(only: Mode | None) -> Mode:
    """Return a mode in which an option is allowed."""
    return only or Mode.STREAM
