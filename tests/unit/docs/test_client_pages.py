"""The reference of the SDK lists everything that the code has."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import pytest

import rmq_client
from tests.unit.docs.pages import DOCS, section_of

_REFERENCE = DOCS / "client" / "reference.md"


@pytest.mark.parametrize(
    "name", ["Producer", "PushConsumer", "PullConsumer", "SimpleConsumer", "RawPuller", "Admin"]
)
def test_the_reference_lists_every_constructor_parameter(name: str) -> None:
    section = section_of(_REFERENCE, name)
    for parameter in inspect.signature(getattr(rmq_client, name)).parameters:
        assert f"| `{parameter}` |" in section, parameter


@pytest.mark.parametrize(
    "name", ["Producer", "PushConsumer", "PullConsumer", "SimpleConsumer", "RawPuller", "Admin"]
)
def test_the_reference_lists_every_call(name: str) -> None:
    section = section_of(_REFERENCE, name)
    for call, _ in inspect.getmembers(getattr(rmq_client, name), inspect.isfunction):
        if not call.startswith("_") and call not in ("start", "stop", "next_messages"):
            assert re.search(rf"`{call}[`(]", section), call


@pytest.mark.parametrize(
    "name",
    [
        "RetryPolicy",
        "BatchPolicy",
        "Compression",
        "InFlightLimits",
        "FaultTolerance",
        "FlowControl",
        "PullSettings",
        "ConsumerTiming",
        "ClientSettings",
        "Tracing",
    ],
)
def test_the_reference_lists_every_field_of_the_settings(name: str) -> None:
    section = section_of(_REFERENCE, name)
    for field in fields(getattr(rmq_client, name)):
        assert f"| `{field.name}` |" in section, field.name


def test_the_reference_lists_every_field_of_a_send_result_and_of_the_statistics() -> None:
    for name, heading in (("SendResult", "SendResult"), ("TopicStatistics", "Statistics of a consumer")):
        section = section_of(_REFERENCE, heading)
        for field in fields(getattr(rmq_client, name)):
            assert f"`{field.name}`" in section, field.name
