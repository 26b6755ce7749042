"""Settings as `key=value` lines."""

from __future__ import annotations

import pytest

from rmq_client import UsageError
from rmq_client.admin.property_lines import parse_lines, to_lines
from rmq_remoting.daemon import properties


def test_values_are_read_as_brokers_write_them() -> None:
    text = "brokerName=broker-a\n# a comment\nempty=\nmessageDelayLevel=1s 5s\nurl=a=b\nnonsense\n"
    assert parse_lines(text) == {
        "brokerName": "broker-a",
        "empty": "",
        "messageDelayLevel": "1s 5s",
        "url": "a=b",
    }


@pytest.mark.parametrize("value", ["plain", r"C:\store", "two\nlines", "a=b:c#d!", ""])
def test_servers_read_values_as_they_were_given(value: str) -> None:
    assert properties.parse(to_lines({"storePathRootDir": value})) == {"storePathRootDir": value}


@pytest.mark.parametrize("key", ["", "two words", "a=b", "a\nb"])
def test_a_name_that_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="a key has only the characters"):
        to_lines({key: "1"})
