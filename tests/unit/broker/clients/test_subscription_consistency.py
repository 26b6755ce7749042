"""Groups whose members have different subscriptions are detected and logged."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rmq_broker.clients.client import ConnectedClient
from rmq_broker.clients.consumers import ConsumerTable, Heartbeat
from rmq_broker.clients.subscription_consistency import WARNING_SPACING_MS
from rmq_remoting.bodies.heartbeat import ConsumerData, MessageModel, SubscriptionData
from rmq_remoting.codes import LanguageCode
from tests.support.clock import START_MS
from tests.support.peers import Peer


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
        """Return the log messages about the group since the last call."""
        messages = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return [message for message in messages if message.startswith("members of a group have")]

    @property
    def variants(self) -> int:
        group = self.table.find_group(self.name)
        return 0 if group is None else group.consistency.variants


async def test_equal_subscriptions_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    group = _Group(caplog)
    for _ in range(2):
        group.beat("c1", T="a || b", U="*")
        group.beat("c2", U="*", T="b || a")
    assert (group.variants, group.told()) == (1, [])


async def test_difference_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    group = _Group(caplog)
    for _ in range(3):
        group.beat("c1", T="a", U="*")
        group.beat("c2", T="b", U="*")
        group.beat("c3", T="b", U="*")
    (told,) = group.told()
    assert "different subscriptions" in told and "group=CG" in told
    assert told.endswith("c1: 'T a'; c2: 'T b'")
    assert group.variants == 2


async def test_end_of_a_difference_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    group = _Group(caplog)
    group.beat("c1", T="a")
    group.beat("c2", T="b")
    assert len(group.told()) == 1
    group.beat("c1", T="b")
    (told,) = group.told()
    assert told == "members of a group have the same subscriptions again group=CG"
    group.beat("c2", T="b")
    assert group.told() == []


async def test_difference_ends_when_its_member_leaves(caplog: pytest.LogCaptureFixture) -> None:
    group = _Group(caplog)
    group.beat("c1", T="a")
    group.beat("c2", T="b")
    group.told()
    group.table.connection_closed(group.peers["c2"].connection)
    assert group.variants == 1
    group.beat("c1", T="a")
    assert group.told() == ["members of a group have the same subscriptions again group=CG"]


@pytest.mark.parametrize("what", ["another topic", "no topic", "SQL", "broadcast"])
async def test_kinds_of_differences(caplog: pytest.LogCaptureFixture, what: str) -> None:
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


async def test_heartbeat_without_subscriptions_repeats_the_last(caplog: pytest.LogCaptureFixture) -> None:
    group = _Group(caplog)
    group.beat("c1", T="a")
    group.beat("c1", without_subscriptions=True)
    group.beat("c2", without_subscriptions=True)
    assert (group.variants, group.told()) == (1, [])


async def test_warnings_about_a_changing_group_are_limited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = _Group(caplog)
    group.beat("c1", T="a")
    for number in range(100):
        group.beat("c2", T=f"b{number}", after_ms=WARNING_SPACING_MS // 10)
    assert len(group.told()) == 10


async def test_log_names_only_some_of_many_members(caplog: pytest.LogCaptureFixture) -> None:
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


async def test_admin_tools_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    group = _Group(caplog, "TOOLS_CONSUMER")
    group.beat("c1", T="*")
    group.beat("c2", U="*")
    assert (group.variants, group.told()) == (0, [])
