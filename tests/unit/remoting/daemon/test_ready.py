"""The facts of a daemon that serves, as a line and as a file."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path

import pytest

from rmq_remoting.build_form import BUILD_FORM
from rmq_remoting.daemon.ready import Listening, Ready, local_address

_NAMESRV = Ready(name="namesrv", address="127.0.0.1:9876", metrics=("0.0.0.0", 5557))
_LONELY = Ready(name="broker-a", address="10.0.0.1:10911", namesrv="")
_BROKER = Ready(
    name="broker-a",
    address="10.0.0.1:10911",
    namesrv="10.0.0.7:9876;10.0.0.8:9876",
    route_held_by=["10.0.0.2:10911"],
    grpc=("0.0.0.0", 8081),
    metrics=("10.0.0.1", 5557),
)
_SHARDS = Ready(
    name="b", address="10.0.0.1:10911", namesrv="n:9876", shards=["10.0.0.1:10911", "10.0.0.1:10921"]
)
_PROXY = Ready(name="proxy", address="127.0.0.1:8081", remoting="127.0.0.1:8080", namesrv="n:9876")


@pytest.mark.parametrize(
    ("ready", "line"),
    [
        (_NAMESRV, "namesrv 127.0.0.1:9876"),
        (_LONELY, "broker-a 10.0.0.1:10911 namesrv none"),
        (
            _BROKER,
            "broker-a 10.0.0.1:10911 namesrv 10.0.0.7:9876;10.0.0.8:9876 route-held-by 10.0.0.2:10911 "
            "grpc 0.0.0.0:8081",
        ),
        (_SHARDS, "b 10.0.0.1:10911 namesrv n:9876 shards 2"),
        (_PROXY, "proxy 127.0.0.1:8081 remoting 127.0.0.1:8080 namesrv n:9876"),
    ],
)
def test_the_line_for_people(ready: Ready, line: str) -> None:
    assert ready.line() == line


@pytest.mark.parametrize(
    ("ready", "facts"),
    [
        (_NAMESRV, {"name": "namesrv", "address": "127.0.0.1:9876", "metrics": "127.0.0.1:5557"}),
        (_LONELY, {"name": "broker-a", "address": "10.0.0.1:10911"}),
        (
            _BROKER,
            {
                "name": "broker-a",
                "address": "10.0.0.1:10911",
                "namesrv": "10.0.0.7:9876;10.0.0.8:9876",
                "route_held_by": ["10.0.0.2:10911"],
                "grpc": "127.0.0.1:8081",
                "metrics": "10.0.0.1:5557",
            },
        ),
        (
            _SHARDS,
            {
                "name": "b",
                "address": "10.0.0.1:10911",
                "namesrv": "n:9876",
                "shards": ["10.0.0.1:10911", "10.0.0.1:10921"],
            },
        ),
        (
            _PROXY,
            {
                "name": "proxy",
                "address": "127.0.0.1:8081",
                "remoting": "127.0.0.1:8080",
                "namesrv": "n:9876",
            },
        ),
    ],
)
def test_the_file_has_the_facts_that_there_are(
    tmp_path: Path, ready: Ready, facts: dict[str, object]
) -> None:
    file = tmp_path / "ready.json"
    file.write_text("an older one")

    ready.write(file)

    process = {"version": version("rmq"), "pid": os.getpid(), "form": BUILD_FORM}
    assert json.loads(file.read_text()) == process | facts
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("listening", "address"),
    [
        (("10.0.0.1", 1), "10.0.0.1:1"),
        (("0.0.0.0", 2), "127.0.0.1:2"),
        (("::", 3), "127.0.0.1:3"),
        (("", 4), "127.0.0.1:4"),
        (("fd00::1", 5), "[fd00::1]:5"),
    ],
)
def test_clients_of_this_machine_reach_a_socket_on_every_interface(
    listening: Listening, address: str
) -> None:
    assert local_address(*listening) == address
