"""The generated modules: they are current, and another definition of their names may be in the process."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from rmq_proxy.protocol import definition_pb2, service_pb2

PROXY = Path(__file__).parents[3] / "proxy"


def test_the_modules_are_what_the_script_generates(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    for written in runpy.run_path(str(PROXY / "protos" / "generate.py"))["generate"](tmp_path):
        checked_in = PROXY / "rmq_proxy" / "protocol" / written.name
        assert checked_in.read_text() == written.read_text(), "run: python proxy/protos/generate.py"


def test_the_names_are_those_of_the_protocol() -> None:
    assert service_pb2.DESCRIPTOR.services_by_name["MessagingService"].full_name == (
        "apache.rocketmq.v2.MessagingService"
    )
    assert definition_pb2.Code.Value("INVALID_RECEIPT_HANDLE") == 40013


def test_apaches_client_may_be_in_the_same_process() -> None:
    theirs = pytest.importorskip("rocketmq.grpc_protocol.service_pb2")
    request = theirs.SendMessageRequest()
    request.messages.add().topic.name = "T"
    ours = service_pb2.SendMessageRequest.FromString(request.SerializeToString())
    assert ours.messages[0].topic.name == "T"
