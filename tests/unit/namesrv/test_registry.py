"""Changes of routes by brokers and operators, with a virtual clock."""

from __future__ import annotations

import pytest

from rmq_namesrv.registry import NO_MASTER, Departure, MasterOf
from rmq_namesrv.routes import QueueNumbers
from rmq_namesrv.slices import run_to_end
from rmq_namesrv.smallest_id import MinBrokerChange
from rmq_remoting.bodies.static_topic import TopicQueueMappingInfo
from rmq_remoting.errors import CommandError
from tests.support.peers import Peer
from tests.support.waiting import loop_passes
from tests.unit.namesrv.parts import EIGHT_QUEUES, Tables, identity, registered

FOUR_QUEUES = QueueNumbers(6, 4, 4, 0)
MANY = {f"T{number}": EIGHT_QUEUES for number in range(1000)}


def leave(tables: Tables, *names: str) -> None:
    departures = [Departure.of(identity(name)) for name in names]
    run_to_end(tables.registry.leave(departures, "test"))


# --- registration ---


def test_a_registration_adds_the_brokers_topics() -> None:
    tables = Tables()
    assert tables.register(identity()) == NO_MASTER
    assert tables.addresses("TopicTest") == {"broker-a": {"0": "broker-a-0:10911"}}
    assert tables.brokers.clusters() == {"DefaultCluster": ["broker-a"]}
    assert tables.numbers("TopicTest") == EIGHT_QUEUES


def test_topics_change_only_with_the_version() -> None:
    tables = Tables()
    tables.register(identity(), registered({"T": EIGHT_QUEUES, "U": EIGHT_QUEUES}))
    tables.register(identity(), registered({"T": FOUR_QUEUES, "U": EIGHT_QUEUES, "V": FOUR_QUEUES}))
    assert tables.numbers("T") == EIGHT_QUEUES, "the same version: existing topics are kept"
    assert tables.numbers("V") == FOUR_QUEUES, "missing topics are added"
    tables.register(identity(), registered({"T": FOUR_QUEUES, "U": EIGHT_QUEUES}, counter=2))
    assert tables.numbers("T") == FOUR_QUEUES
    assert tables.numbers("V") == FOUR_QUEUES, "not listed any more, but not forgotten either"


def test_unlisted_topics_are_deleted_if_configured() -> None:
    tables = Tables(deleteTopicWithBrokerRegistration="true")
    tables.register(identity("broker-b"), registered(MANY))
    tables.register(identity(), registered(MANY))
    tables.register(identity(), registered({"T1": EIGHT_QUEUES, "T2": EIGHT_QUEUES}, counter=2))
    assert tables.numbers("T1") == EIGHT_QUEUES
    assert tables.numbers("T3") is None
    assert tables.numbers("T3", "broker-b") == EIGHT_QUEUES


def test_two_brokers_of_one_name_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    tables = Tables()
    tables.register(identity(address="10.0.0.1:10911"))
    tables.register(identity(address="10.0.0.1:10911"))
    assert "two brokers" not in caplog.text
    tables.register(identity(address="10.0.0.2:10911"))
    (record,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert record.getMessage().startswith(
        "two brokers have one name broker=broker-a broker_id=0 address=10.0.0.2:10911 "
        "other_address=10.0.0.1:10911"
    )


def test_a_broker_that_moved_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    tables = Tables()
    tables.register(identity(address="10.0.0.1:10911"))
    departed = Departure.of(identity(address="10.0.0.1:10911"))
    run_to_end(tables.registry.leave([departed], "test"))
    tables.register(identity(address="10.0.0.2:10911"))
    assert "two brokers" not in caplog.text


def test_a_single_topic_needs_a_registered_broker() -> None:
    tables = Tables()
    with pytest.raises(CommandError, match=r"broker-a .* is not registered"):
        tables.register(identity(), registered({"T": EIGHT_QUEUES}))
    assert len(tables.brokers) == 0
    tables.register(identity())
    tables.register(identity(), registered({"T": EIGHT_QUEUES}, counter=2))
    assert tables.numbers("T") == EIGHT_QUEUES
    assert tables.numbers("TopicTest") == EIGHT_QUEUES


def test_partial_registrations_add_up() -> None:
    tables = Tables()
    tables.register(identity(), registered({"A": EIGHT_QUEUES, "B": EIGHT_QUEUES}))
    tables.register(identity(), registered({"C": EIGHT_QUEUES, "D": EIGHT_QUEUES}))
    assert sorted(tables.routes.topics()) == ["A", "B", "C", "D"]


def test_a_returning_broker_adds_its_topics_whatever_their_version() -> None:
    tables = Tables()
    tables.register(identity())
    leave(tables, "broker-a")
    assert tables.route("TopicTest") is None
    tables.register(identity(), registered({"TopicTest": FOUR_QUEUES, "U": EIGHT_QUEUES}))
    assert tables.numbers("TopicTest") == FOUR_QUEUES


def test_a_slave_adds_its_address_and_gets_its_master() -> None:
    tables = Tables()
    tables.register(identity())
    slave = identity(broker_id=1)
    assert tables.register(slave, registered(MANY)) == MasterOf("broker-a-0:10911", "broker-a-0:10912")
    assert tables.addresses("TopicTest") == {"broker-a": {"0": "broker-a-0:10911", "1": "broker-a-1:10911"}}
    assert tables.numbers("T1") is None, "topics are the master's"


def test_a_slave_without_a_master_gets_none() -> None:
    tables = Tables()
    assert tables.register(identity(broker_id=1)) == NO_MASTER
    assert tables.brokers.address_count == 1
    assert tables.routes.topics() == []


def test_a_slave_that_may_act_adds_its_topics_read_only() -> None:
    tables = Tables(supportActingMaster="true")
    tables.register(identity(broker_id=1, enable_acting_master=True))
    assert tables.perm("TopicTest") == 4
    assert tables.addresses("TopicTest") == {"broker-a": {"0": "broker-a-1:10911"}}
    tables.register(identity(enable_acting_master=True))
    assert tables.perm("TopicTest") == 6
    assert tables.addresses("TopicTest") == {"broker-a": {"0": "broker-a-0:10911", "1": "broker-a-1:10911"}}


def test_a_slave_that_may_not_act_keeps_its_permissions() -> None:
    tables = Tables()
    tables.register(identity(broker_id=1, enable_acting_master=False))
    assert tables.perm("TopicTest") == 6


def test_a_changed_broker_id_leaves_no_duplicate() -> None:
    tables = Tables()
    tables.register(identity(broker_id=1, address="x:1"))
    tables.register(identity(broker_id=0, address="x:1"))
    group = tables.brokers.get("broker-a")
    assert group is not None
    assert group.addresses == {0: "x:1"}


def test_a_changed_address_replaces_the_old_one() -> None:
    tables = Tables()
    tables.register(identity(address="old:1"))
    tables.register(identity(address="new:1"))
    assert tables.addresses("TopicTest") == {"broker-a": {"0": "new:1"}}
    run_to_end(tables.registry.leave([Departure.of(identity(address="old:1"))], "test"))
    assert tables.addresses("TopicTest") == {"broker-a": {"0": "new:1"}}


def test_a_returning_old_master_is_refused() -> None:
    tables = Tables()
    tables.register(identity(address="new:1"), registered(state_version=2))
    tables.register(identity(address="old:1"), registered(state_version=1, counter=9))
    assert tables.addresses("TopicTest") == {"broker-a": {"0": "new:1"}}
    assert tables.live.get(("DefaultCluster", "old:1")) is None
    assert tables.registry.registrations["outdated"] == 1
    tables.register(identity(address="newer:1"), registered(state_version=3))
    assert tables.addresses("TopicTest") == {"broker-a": {"0": "newer:1"}}


def test_mappings_of_static_topics_are_applied() -> None:
    tables = Tables()
    mapping = TopicQueueMappingInfo(
        topic="Static", broker_name="broker-a", current_id_map={0: 3}, total_queues=4
    )
    topics = {"Static": EIGHT_QUEUES, "T": EIGHT_QUEUES}
    tables.register(identity(), registered(topics, mappings={"Static": mapping}))
    answer = tables.route("Static")
    assert answer is not None
    assert answer["topicQueueMappingByBroker"] == {
        "broker-a": {
            "bname": "broker-a",
            "currIdMap": {"0": 3},
            "dirty": False,
            "epoch": 0,
            "scope": "__global__",
            "topic": "Static",
            "totalQueues": 4,
        }
    }
    assert "topicQueueMappingByBroker" not in (tables.route("T") or {})


# --- the same again ---


async def test_an_unchanged_registration_is_only_a_heartbeat() -> None:
    tables = Tables()
    connection, newer = Peer().connection, Peer().connection
    broker = identity()
    assert tables.registry.refresh(broker, connection, b"1") is None
    tables.register(broker, connection=connection, fingerprint=b"1")
    tables.clock.now += 100
    assert tables.registry.refresh(broker, newer, b"1") == NO_MASTER
    tables.clock.now += 100
    assert tables.live.silent() == []
    assert [known.identity for known in tables.live.of_connection(newer)] == [broker]
    assert tables.registry.refresh(broker, newer, b"2") is None, "other bytes"
    assert tables.registry.refresh(identity(zone_name="z"), newer, b"1") is None, "another zone"


async def test_an_unchanged_registration_is_read_again_after_another_change() -> None:
    tables = Tables()
    connection = Peer().connection
    tables.register(identity(), connection=connection, fingerprint=b"1")
    tables.registry.delete_topic("nothing", None)
    assert tables.registry.refresh(identity(), connection, b"1") is not None
    tables.registry.delete_topic("TopicTest", None)
    assert tables.registry.refresh(identity(), connection, b"1") is None
    tables.register(identity(), connection=connection, fingerprint=b"1")
    assert tables.numbers("TopicTest") == EIGHT_QUEUES
    tables.register(identity("broker-b"), connection=connection, fingerprint=b"1")
    assert tables.registry.refresh(identity(), connection, b"1") is None


# --- departure ---


def test_a_departing_broker_is_removed_with_its_topics() -> None:
    tables = Tables()
    tables.register(identity("broker-a"), registered(MANY))
    tables.register(identity("broker-b"), registered({"T1": EIGHT_QUEUES, "U": EIGHT_QUEUES}))
    leave(tables, "broker-a")
    assert sorted(tables.routes.topics()) == ["T1", "U"]
    assert list(tables.addresses("T1")) == ["broker-b"]
    leave(tables, "broker-b")
    assert tables.routes.topics() == []
    assert tables.brokers.clusters() == {}
    assert len(tables.live) == 0


def test_a_broker_that_left_is_in_no_response_even_before_the_sweep() -> None:
    tables = Tables()
    tables.register(identity("broker-a"), registered(MANY))
    tables.register(identity("broker-b"), registered(MANY))
    steps = tables.registry.leave([Departure.of(identity("broker-a"))], "test")
    assert list(tables.addresses("T999")) == ["broker-b"]
    run_to_end(steps)
    assert tables.numbers("T999") is None


def test_a_broker_that_returned_before_the_sweep_is_kept() -> None:
    tables = Tables()
    tables.register(identity(), registered(MANY))
    steps = tables.registry.leave([Departure.of(identity())], "test")
    tables.register(identity(), registered(MANY))
    run_to_end(steps)
    assert tables.numbers("T999") == EIGHT_QUEUES


def test_a_departure_during_the_registration_leaves_nothing_behind() -> None:
    tables = Tables()
    registration = tables.registry.register(identity(), None, registered(MANY))
    next(registration)
    assert tables.routes.topics()
    leave(tables, "broker-a")
    assert run_to_end(registration) == NO_MASTER
    assert tables.routes.topics() == []
    assert tables.registry.registrations["interrupted"] == 1


def test_a_departing_slave_removes_only_its_address() -> None:
    tables = Tables()
    tables.register(identity())
    tables.register(identity(broker_id=1))
    run_to_end(tables.registry.leave([Departure.of(identity(broker_id=1))], "test"))
    assert tables.addresses("TopicTest") == {"broker-a": {"0": "broker-a-0:10911"}}
    assert tables.perm("TopicTest") == 6


def test_a_group_that_may_act_becomes_read_only_without_its_master() -> None:
    tables = Tables(supportActingMaster="true")
    tables.register(identity(enable_acting_master=True), registered(MANY))
    tables.register(identity(broker_id=1, enable_acting_master=True), registered(MANY))
    assert tables.perm("T1") == 6
    leave(tables, "broker-a")
    assert tables.perm("T999") == 4
    assert tables.addresses("T1") == {"broker-a": {"0": "broker-a-1:10911"}}
    tables.register(identity(enable_acting_master=True), registered(MANY))
    assert tables.perm("T999") == 6


def test_a_group_that_may_not_act_is_unchanged_without_its_master() -> None:
    tables = Tables(supportActingMaster="true")
    tables.register(identity())
    tables.register(identity(broker_id=1))
    leave(tables, "broker-a")
    assert tables.perm("TopicTest") == 6
    assert tables.addresses("TopicTest") == {"broker-a": {"1": "broker-a-1:10911"}}


def test_the_departure_of_an_unknown_broker_changes_nothing() -> None:
    tables = Tables()
    tables.register(identity())
    leave(tables, "nobody")
    assert tables.numbers("TopicTest") == EIGHT_QUEUES


async def test_a_closed_connection_removes_all_its_brokers() -> None:
    tables = Tables()
    old, new = Peer().connection, Peer().connection
    for name in ("broker-a", "broker-b"):
        tables.register(identity(name), connection=old)
    tables.register(identity("broker-b"), connection=new)
    steps = tables.registry.leave_by_connection(old)
    assert steps is not None
    run_to_end(steps)
    assert list(tables.addresses("TopicTest")) == ["broker-b"]
    assert tables.registry.leave_by_connection(old) is None


async def test_silent_brokers_are_removed_and_their_connections_closed() -> None:
    tables = Tables()
    peer = Peer()
    tables.register(identity("broker-a"), connection=peer.connection)
    tables.clock.now += 100
    tables.register(identity("broker-b"))
    tables.clock.now += 20
    assert tables.registry.leave_silent() is None
    tables.clock.now += 1
    steps = tables.registry.leave_silent()
    assert steps is not None
    run_to_end(steps)
    assert peer.transport.is_closing()
    assert list(tables.addresses("TopicTest")) == ["broker-b"]
    assert tables.registry.departures["silent"] == 1
    await loop_passes()


# --- the smallest id ---


def test_brokers_are_notified_of_another_smallest_id() -> None:
    tables = Tables(notifyMinBrokerIdChanged="true")
    for broker_id in (2, 1):
        tables.register(identity(broker_id=broker_id, enable_acting_master=True))
    assert tables.notified == [
        MinBrokerChange("broker-a", 1, "broker-a-1:10911", ("broker-a-2:10911",), None, "broker-a-1:10912")
    ]
    tables.register(identity(broker_id=3, enable_acting_master=True))
    run_to_end(tables.registry.leave([Departure.of(identity(broker_id=1))], "test"))
    assert tables.notified[1:] == [
        MinBrokerChange(
            "broker-a",
            2,
            "broker-a-2:10911",
            ("broker-a-2:10911", "broker-a-3:10911"),
            "broker-a-1:10911",
        )
    ]


def test_a_slave_that_becomes_master_is_notified_itself() -> None:
    tables = Tables(notifyMinBrokerIdChanged="true")
    tables.register(identity(broker_id=1, address="x:1", enable_acting_master=True))
    tables.register(identity(broker_id=0, address="x:1", enable_acting_master=True))
    assert [(change.smallest_id, change.receivers) for change in tables.notified] == [(0, ("x:1",))]


@pytest.mark.parametrize(("setting", "acting"), [("false", True), ("true", False)])
def test_notifications_can_be_disabled(setting: str, acting: bool) -> None:
    tables = Tables(notifyMinBrokerIdChanged=setting)
    tables.register(identity(enable_acting_master=acting))
    tables.register(identity(broker_id=1, enable_acting_master=acting))
    leave(tables, "broker-a")
    assert tables.notified == []


# --- topics and permissions ---


def test_a_single_topic_is_added() -> None:
    tables = Tables()
    tables.register(identity("broker-a"))
    tables.register(identity("broker-b"))
    tables.registry.register_topic("New", [("broker-a", FOUR_QUEUES), ("broker-b", EIGHT_QUEUES)])
    assert tables.numbers("New") == FOUR_QUEUES
    tables.registry.register_topic("New", [("broker-a", EIGHT_QUEUES)])
    assert (tables.numbers("New"), tables.numbers("New", "broker-b")) == (EIGHT_QUEUES, EIGHT_QUEUES)
    with pytest.raises(CommandError, match="no broker broker-x is registered"):
        tables.registry.register_topic("New", [("broker-a", FOUR_QUEUES), ("broker-x", FOUR_QUEUES)])
    assert tables.numbers("New") == EIGHT_QUEUES
    tables.registry.register_topic("Nothing", [])
    assert tables.routes.get("Nothing") is None


def test_a_topic_is_deleted_everywhere_or_in_one_cluster() -> None:
    tables = Tables()
    topics = registered({"T": EIGHT_QUEUES, "U": EIGHT_QUEUES})
    tables.register(identity("broker-a"), topics)
    tables.register(identity("broker-x", cluster="Other"), topics)
    tables.registry.delete_topic("T", "Other")
    assert list(tables.addresses("T")) == ["broker-a"]
    tables.registry.delete_topic("T", "nowhere")
    tables.registry.delete_topic("T", "DefaultCluster")
    assert tables.routes.get("T") is None
    tables.registry.delete_topic("U", "")
    assert tables.routes.get("U") is None
    tables.register(identity("broker-a"), topics)
    assert tables.numbers("T") == EIGHT_QUEUES, "a registration brings it back"


def test_write_permission_is_wiped_and_restored() -> None:
    tables = Tables()
    topics = {**MANY, "TBW102": QueueNumbers(7, 8, 8, 0), "ReadOnly": QueueNumbers(4, 8, 8, 0)}
    tables.register(identity("broker-a"), registered(topics))
    tables.register(identity("broker-b"), registered(topics))
    assert run_to_end(tables.registry.wipe_write_permission("broker-a")) == 1002
    assert (tables.perm("T1"), tables.perm("TBW102"), tables.perm("ReadOnly")) == (4, 5, 4)
    assert tables.perm("T1", "broker-b") == 6
    tables.register(identity("broker-a"), registered(topics))
    assert tables.perm("T1") == 4, "stays while the broker's version is the same"
    assert run_to_end(tables.registry.add_write_permission("broker-a")) == 1002
    assert (tables.perm("T1"), tables.perm("TBW102"), tables.perm("ReadOnly")) == (6, 7, 6)
    assert run_to_end(tables.registry.wipe_write_permission("nobody")) == 0


def test_a_new_version_restores_wiped_permissions() -> None:
    tables = Tables()
    tables.register(identity())
    run_to_end(tables.registry.wipe_write_permission("broker-a"))
    tables.register(identity(), registered(counter=2))
    assert tables.perm("TopicTest") == 6


def test_a_common_departure_of_several_members_is_one_change() -> None:
    tables = Tables(notifyMinBrokerIdChanged="true")
    members = [identity(broker_id=number, enable_acting_master=True) for number in range(4)]
    for member in members:
        tables.register(member)
    run_to_end(tables.registry.leave([Departure.of(member) for member in members[:2]], "test"))
    assert tables.notified == [
        MinBrokerChange(
            "broker-a", 2, "broker-a-2:10911", ("broker-a-2:10911", "broker-a-3:10911"), "broker-a-1:10911"
        )
    ]
    run_to_end(tables.registry.leave([Departure.of(member) for member in members], "test"))
    assert len(tables.notified) == 1, "nobody is left to be told"
    assert tables.registry.departures["test"] == 4
