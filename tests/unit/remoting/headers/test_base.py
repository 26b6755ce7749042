"""The base of typed headers."""

from __future__ import annotations

import pytest

from rmq_remoting.errors import HeaderError
from rmq_remoting.headers.base import Header
from rmq_remoting.integers import Int32


class SampleHeader(Header):
    consumer_group: str
    queue_id: Int32
    is_last: bool = False
    broker_name: str | None = None


def test_names_on_the_wire_are_camel_case() -> None:
    header = SampleHeader.decode({"consumerGroup": "g", "queueId": "-3", "isLast": "true", "brokerName": "b"})

    assert header == SampleHeader(consumer_group="g", queue_id=-3, is_last=True, broker_name="b")
    assert header.encode() == {"consumerGroup": "g", "queueId": "-3", "isLast": "true", "brokerName": "b"}


def test_absent_values_are_omitted() -> None:
    header = SampleHeader.decode({"consumerGroup": "g", "queueId": "1"})
    assert header.encode() == {"consumerGroup": "g", "queueId": "1", "isLast": "false"}


def test_unknown_fields_are_ignored() -> None:
    fields = {"consumerGroup": "g", "queueId": "1", "somethingNew": "x"}
    assert SampleHeader.decode(fields) == SampleHeader(consumer_group="g", queue_id=1)


def test_missing_field_is_named() -> None:
    with pytest.raises(HeaderError) as caught:
        SampleHeader.decode({"queueId": "1"})
    assert str(caught.value) == "SampleHeader: consumerGroup: Field required"


@pytest.mark.parametrize("value", ["", "x", "1.5", str(2**31), str(-(2**31) - 1), "9" * 5000])
def test_bad_value_is_named_and_shown(value: str) -> None:
    with pytest.raises(HeaderError) as caught:
        SampleHeader.decode({"consumerGroup": "g", "queueId": value})
    assert str(caught.value).startswith("SampleHeader: queueId: ")
    assert "got " in str(caught.value)
    assert len(str(caught.value)) < 400


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(HeaderError) as caught:
        SampleHeader.decode({"queueId": "x", "isLast": "perhaps"})
    for name in ("consumerGroup", "queueId", "isLast"):
        assert name in str(caught.value)


def test_huge_values_are_truncated_in_errors() -> None:
    with pytest.raises(HeaderError) as caught:
        SampleHeader.decode({"consumerGroup": "g", "queueId": "\x00" * 5_000_000, "isLast": "y" * 5_000_000})
    assert len(str(caught.value)) < 1000


def test_fields_are_known_by_their_wire_names_alone() -> None:
    """A check of access looks at wire names: another spelling must not reach a processor."""
    with pytest.raises(HeaderError, match="consumerGroup"):
        SampleHeader.decode({"queueId": "0", "consumer_group": "G"})
    header = SampleHeader.decode({"queueId": "0", "consumerGroup": "G", "consumer_group": "H"})
    assert header.consumer_group == "G"
