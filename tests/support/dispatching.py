"""Processors, tiers, requests and a clock for tests of the dispatcher."""

from __future__ import annotations

import threading
from typing import Any

from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Processor
from rmq_remoting.tiers import InlineTier

SECRET = "a detail that must not leave the server"


class Clock:
    """Seconds that the test sets."""

    def __init__(self) -> None:
        self.seconds = 5000.0

    def __call__(self) -> float:
        return self.seconds


class Gate:
    """A processor that blocks its thread until the gate is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered = 0

    def __call__(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self.entered += 1
        assert self.opened.wait(10)
        return request.response(0)


def echo(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return request.response(0, ext_fields=dict(request.ext_fields), body=request.body)


def raising(error: BaseException) -> Processor:
    def processor(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        raise error

    return processor


def returning(answer: Any) -> Processor:
    return lambda connection, request: answer


def inline(name: str = "inline", capacity: int = 100, max_wait_ms: int = 200) -> InlineTier:
    return InlineTier(name, capacity=capacity, max_wait_ms=max_wait_ms)


def request(code: int = 10, *, oneway: bool = False, binary: bool = False, **fields: str) -> RemotingCommand:
    serialization = Serialization.BINARY if binary else Serialization.JSON
    return RemotingCommand.request(code, fields, oneway=oneway, serialization=serialization)
