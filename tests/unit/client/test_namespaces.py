"""Names with and without their namespace, as Apache's clients write them."""

from __future__ import annotations

import pytest

from rmq_client import ClientSettings, MessageQueue, UsageError
from rmq_client.namespaces import NO_NAMESPACE, Namespace

_SHOP = Namespace("shop")


# Apache RocketMQ 5.3.3, NamespaceUtil.
@pytest.mark.parametrize(
    ("own", "full"),
    [
        ("orders", "shop%orders"),
        ("%RETRY%till", "%RETRY%shop%till"),
        ("%DLQ%till", "%DLQ%shop%till"),
        ("other%orders", "shop%other%orders"),
        ("shop", "shop%shop"),
    ],
)
def test_wrap_and_unwrap_are_inverse(own: str, full: str) -> None:
    assert _SHOP.wrap(own) == full
    assert _SHOP.wrap(full) == full, "it gets it once"
    assert _SHOP.unwrap(full) == own
    assert _SHOP.has(full)
    assert not _SHOP.has(own)
    assert Namespace("sho").unwrap(full) == full
    assert (NO_NAMESPACE.wrap(own), NO_NAMESPACE.unwrap(full), NO_NAMESPACE.has(own)) == (own, full, True)


@pytest.mark.parametrize(
    "name",
    [
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRACE_TOPIC",
        "rmq_sys_wheel_timer",
        "CID_RMQ_SYS_TRANS",
        "DefaultCluster_REPLY_TOPIC",
        "",
    ],
)
def test_system_names_are_in_no_namespace(name: str) -> None:
    assert _SHOP.wrap(name) == name


def test_queues_are_wrapped_by_their_topic() -> None:
    own, full = MessageQueue("orders", "b", 3), MessageQueue("shop%orders", "b", 3)
    assert (_SHOP.wrap_queue(own), _SHOP.unwrap_queue(full)) == (full, own)
    assert NO_NAMESPACE.wrap_queue(own) is own


def test_group_names_are_checked_with_their_namespace() -> None:
    assert _SHOP.checked_group("till") == "shop%till"
    with pytest.raises(UsageError, match="256 characters"):
        _SHOP.checked_group("g" * 251)
    with pytest.raises(UsageError, match="a name is needed"):
        _SHOP.checked_group("")


@pytest.mark.parametrize("name", ["a%b", "a b", "%RETRY%", 5])
def test_an_invalid_namespace_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="namespace"):
        ClientSettings(namespace=name)
