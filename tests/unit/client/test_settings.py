"""Name server lists, names, and equality of settings."""

from __future__ import annotations

import pytest

from rmq_client import ClientSettings, UsageError
from rmq_client.names import check_group, check_topic, check_topic_to_send
from rmq_client.settings import name_server_list


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a:1", ("a:1",)),
        ("a:1;b:2", ("a:1", "b:2")),
        (" a:1 , b:2 ; a:1;", ("a:1", "b:2")),
        (["a:1", "[::1]:2"], ("a:1", "[::1]:2")),
    ],
)
def test_lists_of_name_servers(given: str | list[str], expected: tuple[str, ...]) -> None:
    assert name_server_list(given) == expected


@pytest.mark.parametrize("given", ["", ";", "a", "a:b", "a:0", "a:70000", "http://a/x;b:1", []])
def test_invalid_name_server_lists_are_refused(given: str | list[str]) -> None:
    with pytest.raises(UsageError, match="name server"):
        name_server_list(given)


def test_namesrv_addr_is_the_default_of_name_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "c:3;d:4")
    assert name_server_list(None) == ("c:3", "d:4")
    assert name_server_list("a:1") == ("a:1",)
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(UsageError, match="NAMESRV_ADDR"):
        name_server_list(None)


def test_equal_settings_are_equal_and_hashable() -> None:
    assert ClientSettings() == ClientSettings()
    assert len({ClientSettings(), ClientSettings(), ClientSettings(instance_name="b")}) == 2


@pytest.mark.parametrize("name", ["T", "%RETRY%g", "a-b_c|d", "x" * 127])
def test_valid_names_are_accepted(name: str) -> None:
    check_topic(name)
    check_topic_to_send(name)
    check_group(name)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "x" * 256, "a\n"])
def test_invalid_names_are_refused(name: str) -> None:
    for check in (check_topic, check_topic_to_send, check_group):
        with pytest.raises(UsageError):
            check(name)


def test_system_topics_can_be_read_but_not_sent_to() -> None:
    check_topic("SCHEDULE_TOPIC_XXXX")
    with pytest.raises(UsageError, match="is a system topic of the brokers"):
        check_topic_to_send("SCHEDULE_TOPIC_XXXX")
