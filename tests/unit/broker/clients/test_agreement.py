"""Members that subscribe to different things are found out and told of."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rmq_broker.clients.agreement import WARNING_SPACING_MS
from rmq_broker.clients.client import ConnectedClient
from rmq_broker.clients.consumers import ConsumerTable, Heartbeat
from rmq_remoting.bodies.heartbeat import ConsumerData, MessageModel, SubscriptionData
from rmq_remoting.codes import LanguageCode
from tests.unit.broker.parts import START_MS, Peer


class _Group:
    """Heartbeats of one group's members, a minute apart."""

    def __init__(self, caplog: pytest.LogCaptureFixture, name: str = "CG") -> None:
        caplog.set_level("INFO", "rmq.broker.clients")
        self.name = name
        self.now_ms = START_MS
        self.table = ConsumerTable()
        self.peers: dict[str, Peer] = {}
        self._caplog = caplog

    def beat(
        self,
        client_id: str,
        *,
        model: MessageModel = MessageModel.CLUSTERING,
        kind: str = "TAG",
        after_ms: int = 60_000,
        without_subscriptions: bool = False,
        topics: Iterable[str] = (),
        **expressions: str,
    ) -> None:
        self.now_ms += after_ms
        subscriptions = [
            SubscriptionData(
                topic=topic,
                sub_string=expression,
                expression_type=kind,
                tags_set=[] if expression == "*" or kind != "TAG" else expression.split(" || "),
                sub_version=self.now_ms,
            )
            for topic, expression in {
                **expressions,
                **dict.fromkeys(topics, "*"),
                "%RETRY%CG": "*",
            }.items()
        ]
        if without_subscriptions:
            subscriptions = []
        peer = self.peers.setdefault(client_id, Peer())
        client = ConnectedClient(peer.connection, client_id, LanguageCode.JAVA, 479, self.now_ms)
        data = ConsumerData(group_name=self.name, message_model=model, subscription_data_set=subscriptions)
        self.table.register(Heartbeat(data, 7, without_subscriptions), client)

    def told(self) -> list[str]:
        """What was said of it since the last time."""
        messages = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return [message for message in messages if "subscribe to the same" in message]

    @property
    def variants(self) -> int:
        group = self.table.find_group(self.name)
        return 0 if group is None else group.agreement.variants


async def test_members_that_agree_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    group = _Group(caplog)
    for _ in range(2):
        group.beat("c1", T="a || b", U="*")
        group.beat("c2", U="*", T="b || a")
    assert (group.variants, group.told()) == (1, [])


async def test_who_differs_in_what_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    group = _Group(caplog)
    for _ in range(3):
        group.beat("c1", T="a", U="*")
        group.beat("c2", T="b", U="*")
        group.beat("c3", T="b", U="*")
    (told,) = group.told()
    assert "group CG do not subscribe to the same" in told
    assert told.endswith("c1: 'T a'; c2: 'T b'")
    assert group.variants == 2


async def test_agreeing_again_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    group = _Group(caplog)
    group.beat("c1", T="a")
    group.beat("c2", T="b")
    assert len(group.told()) == 1
    group.beat("c1", T="b")
    (told,) = group.told()
    assert told == "the members of group CG subscribe to the same again"
    group.beat("c2", T="b")
    assert group.told() == []


async def test_a_member_that_leaves_takes_the_difference_along(caplog: pytest.LogCaptureFixture) -> None:
    group = _Group(caplog)
    group.beat("c1", T="a")
    group.beat("c2", T="b")
    group.told()
    group.table.connection_closed(group.peers["c2"].connection)
    assert group.variants == 1
    group.beat("c1", T="a")
    assert group.told() == ["the members of group CG subscribe to the same again"]


@pytest.mark.parametrize("what", ["another topic", "no topic", "SQL", "broadcast"])
async def test_what_makes_a_difference(caplog: pytest.LogCaptureFixture, what: str) -> None:
    group = _Group(caplog)
    group.beat("c1", T="*")
    if what == "another topic":
        group.beat("c2", T="*", U="*")
    elif what == "no topic":
        group.beat("c2")
    elif what == "SQL":
        group.beat("c2", kind="SQL92", T="a > 5")
    else:
        group.beat("c2", model=MessageModel.BROADCASTING, T="*")
    (told,) = group.told()
    expected = {
        "another topic": "c1: nothing more; c2: 'U *'",
        "no topic": "c1: 'T *'; c2: nothing more",
        "SQL": "c1: 'T *'; c2: 'T by SQL92 a > 5'",
        "broadcast": "c1: nothing more; c2: 'every message by itself (BROADCASTING)'",
    }
    assert told.endswith(expected[what])


async def test_a_heartbeat_without_subscriptions_is_as_the_last(caplog: pytest.LogCaptureFixture) -> None:
    group = _Group(caplog)
    group.beat("c1", T="a")
    group.beat("c1", without_subscriptions=True)
    group.beat("c2", without_subscriptions=True)
    assert (group.variants, group.told()) == (1, [])


async def test_a_group_that_changes_all_the_time_is_told_of_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = _Group(caplog)
    group.beat("c1", T="a")
    for number in range(100):
        group.beat("c2", T=f"b{number}", after_ms=WARNING_SPACING_MS // 10)
    assert len(group.told()) == 10


async def test_of_many_only_some_are_named(caplog: pytest.LogCaptureFixture) -> None:
    group = _Group(caplog)
    for number in range(20):
        group.beat(f"c{number}", after_ms=0, topics=[f"T{number // 5}" * 200])
    for number in range(20, 30):
        group.beat(f"c{number}", after_ms=0, topics=[f"U{topic}" for topic in range(number)])
    group.beat("c30", U="*")
    (_, told) = group.told()
    assert "c0, c1, c2 and 2 more: " in told
    assert told.endswith("and 11 more variants")
    assert len(told) < 1000


async def test_tools_have_their_own_errands(caplog: pytest.LogCaptureFixture) -> None:
    group = _Group(caplog, "TOOLS_CONSUMER")
    group.beat("c1", T="*")
    group.beat("c2", U="*")
    assert (group.variants, group.told()) == (0, [])
