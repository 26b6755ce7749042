"""The proxy in front of brokers of this process: statuses, routes, receipts, renewals, restarts."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from rmq_client.admin import Admin
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_proxy.protocol.definition_pb2 import Code
from rmq_proxy.service import NAME
from rmq_remoting.bodies.group import (
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    SubscriptionGroupConfig,
)
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.grpc_client import NO_ID, GrpcClient, grpc_client, message, resource
from tests.support.running_proxy import running_proxy
from tests.support.waiting import until, until_answer

BROKERS = {"broker-a": {"T": 2, "U": 1}, "broker-b": {"T": 3}}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path, BROKERS, enableMixedMessageType="true") as running:
        yield running


@pytest.fixture
async def client(cluster: RunningCluster) -> AsyncIterator[GrpcClient]:
    async with running_proxy(cluster.address) as proxy, grpc_client(proxy.address) as connected:
        yield connected


def _endpoints(port: int = 18081) -> pb.Endpoints:
    return pb.Endpoints(scheme=pb.DOMAIN_NAME, addresses=[pb.Address(host="proxy.example", port=port)])


async def _type_topic(cluster: RunningCluster, topic: str, message_type: str) -> None:
    """Create a topic for messages of one type on all brokers."""
    async with Admin(cluster.address) as admin:
        await admin.create_topic(topic, queues=1, attributes={"+message.type": message_type})


# --- the server ---


async def test_health_and_reflection_are_served(client: GrpcClient) -> None:
    health = health_pb2_grpc.HealthStub(client.channel)
    for service in ("", NAME):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_reflection_describes_the_service(cluster: RunningCluster) -> None:
    async with running_proxy(cluster.address) as proxy:

        def described() -> tuple[list[str], list[str]]:
            with grpc.insecure_channel(proxy.address) as channel:
                database = ProtoReflectionDescriptorDatabase(channel)
                file = database.FindFileContainingSymbol(NAME)
                return list(database.get_services()), [method.name for method in file.service[0].method]

        services, methods = await asyncio.to_thread(described)
    assert NAME in services
    assert {"QueryRoute", "ReceiveMessage", "Telemetry"} <= set(methods)


async def test_a_call_needs_a_client_id(cluster: RunningCluster) -> None:
    async with running_proxy(cluster.address) as proxy, grpc_client(proxy.address, NO_ID) as client:
        answer = await client.call("Heartbeat", rpc.HeartbeatRequest())
        assert (answer.status.code, answer.status.message) == (
            Code.CLIENT_ID_REQUIRED,
            "client id cannot be empty",
        )
        status, _ = await client.receive("G", "T")
        assert status.code == Code.CLIENT_ID_REQUIRED


async def test_methods_that_are_missing_are_unimplemented(client: GrpcClient) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.channel.unary_unary(f"/{NAME}/SyncLiteSubscription")(b"")
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


# --- routes ---


async def test_a_route_has_the_proxys_endpoints_in_place_of_the_brokers(cluster: RunningCluster) -> None:
    request = rpc.QueryRouteRequest(topic=resource("T"), endpoints=_endpoints())
    async with running_proxy(cluster.address) as proxy, grpc_client(proxy.address) as client:
        answer = await client.call("QueryRoute", request)
        assert answer.status.code == Code.OK
        places = sorted((queue.broker.name, queue.id, queue.permission) for queue in answer.message_queues)
        assert places == [
            *(("broker-a", number, pb.READ_WRITE) for number in range(2)),
            *(("broker-b", number, pb.READ_WRITE) for number in range(3)),
        ]
        for queue in answer.message_queues:
            assert queue.broker.endpoints == _endpoints(proxy.port)
            assert list(queue.accept_message_types) == [pb.NORMAL]
    async with (
        running_proxy(cluster.address, useEndpointPortFromRequest=True) as proxy,
        grpc_client(proxy.address) as client,
    ):
        answer = await client.call("QueryRoute", request)
        assert answer.message_queues[0].broker.endpoints == _endpoints()


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("missing", Code.TOPIC_NOT_FOUND),
        ("", Code.ILLEGAL_TOPIC),
        ("a b", Code.ILLEGAL_TOPIC),
        ("TBW102", Code.ILLEGAL_TOPIC),
    ],
)
async def test_routes_of_other_topics_are_refused(client: GrpcClient, topic: str, code: Code) -> None:
    answer = await client.call("QueryRoute", rpc.QueryRouteRequest(topic=resource(topic)))
    assert answer.status.code == code


async def test_a_deleted_topic_is_not_found_any_longer(cluster: RunningCluster) -> None:
    refresh = {"topicRouteServiceCacheRefreshSeconds": 1}
    async with running_proxy(cluster.address, **refresh) as proxy, grpc_client(proxy.address) as client:

        async def code() -> int:
            answer = await client.call("QueryRoute", rpc.QueryRouteRequest(topic=resource("U")))
            return int(answer.status.code)

        async def is_gone() -> bool:
            return await code() == Code.TOPIC_NOT_FOUND

        assert await code() == Code.OK
        async with Admin(cluster.address) as admin:
            await admin.delete_topic("U")
        assert await until_answer(is_gone, 20)


async def test_a_route_keeps_all_addresses_of_the_request_and_their_kind(client: GrpcClient) -> None:
    asked = pb.Endpoints(scheme=pb.IPv6, addresses=[pb.Address(host=host, port=1) for host in ("::1", "::2")])
    for method in (rpc.QueryRouteRequest, rpc.QueryAssignmentRequest):
        request = method(topic=resource("U"), endpoints=asked)
        if method is rpc.QueryAssignmentRequest:
            request.group.name = "G"
        answer = await client.call(method.__name__.removesuffix("Request"), request)
        assert answer.status.code == Code.OK
        queues = (
            answer.message_queues
            if method is rpc.QueryRouteRequest
            else [assignment.message_queue for assignment in answer.assignments]
        )
        for queue in queues:
            endpoints = queue.broker.endpoints
            assert endpoints.scheme == pb.IPv6
            assert [address.host for address in endpoints.addresses] == ["::1", "::2"]
            assert {address.port for address in endpoints.addresses} != {1}


async def test_topics_accept_the_types_of_their_attribute(
    cluster: RunningCluster, client: GrpcClient
) -> None:
    await _type_topic(cluster, "mixed", "MIXED")
    answer = await client.call("QueryRoute", rpc.QueryRouteRequest(topic=resource("mixed")))
    accepted = list(answer.message_queues[0].accept_message_types)
    assert accepted == [pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION]
    refused = await client.send(message("T", message_group="g"))
    assert refused.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


async def test_assignments_are_brokers_and_in_a_fifo_group_queues(
    cluster: RunningCluster, client: GrpcClient
) -> None:
    for broker in cluster.brokers.values():
        broker.services.groups.table.update(
            SubscriptionGroupConfig(group_name="fifo", consume_message_orderly=True)
        )
    places = {}
    for group in ("plain", "fifo"):
        request = rpc.QueryAssignmentRequest(
            topic=resource("T"), group=resource(group), endpoints=_endpoints()
        )
        answer = await client.call("QueryAssignment", request)
        queues = [assignment.message_queue for assignment in answer.assignments]
        places[group] = sorted((queue.broker.name, queue.id) for queue in queues)
    assert places["plain"] == [("broker-a", -1), ("broker-b", -1)]
    assert places["fifo"] == [*(("broker-a", n) for n in range(2)), *(("broker-b", n) for n in range(3))]


# --- clients ---


async def test_a_consumer_gets_the_policy_of_its_group(cluster: RunningCluster, client: GrpcClient) -> None:
    policy = GroupRetryPolicy(
        type=GroupRetryPolicyType.EXPONENTIAL,
        exponential_retry_policy=ExponentialRetryPolicy(initial=2000, max=60_000, multiplier=3),
    )
    for broker in cluster.brokers.values():
        config = SubscriptionGroupConfig(group_name="G", retry_max_times=4, group_retry_policy=policy)
        broker.services.groups.table.update(config)
    settings = await client.consume("G", "T", push=True)
    backoff = settings.backoff_policy
    assert backoff.max_attempts == 5
    assert backoff.exponential_backoff.initial.seconds == 2
    assert (backoff.exponential_backoff.max.seconds, backoff.exponential_backoff.multiplier) == (60, 3)
    assert settings.subscription.receive_batch_size == 32
    assert settings.subscription.long_polling_timeout.seconds == 20
    assert not settings.subscription.fifo and not settings.metric.on


async def test_a_producer_gets_the_proxys_policy(client: GrpcClient) -> None:
    settings = await client.produce("T")
    assert settings.backoff_policy.max_attempts == 3
    assert settings.backoff_policy.exponential_backoff.max.seconds == 1
    assert settings.publishing.validate_message_type
    assert settings.publishing.max_body_size == 4 * 1024 * 1024


async def test_a_client_without_settings_is_not_known(client: GrpcClient) -> None:
    answer = await client.call("Heartbeat", rpc.HeartbeatRequest())
    assert answer.status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    await client.consume("G", "T")
    answer = await client.call("Heartbeat", rpc.HeartbeatRequest(group=resource("G")))
    assert answer.status.code == Code.OK
    leave = rpc.NotifyClientTerminationRequest(group=resource("G"))
    assert (await client.call("NotifyClientTermination", leave)).status.code == Code.OK
    assert (await client.call("NotifyClientTermination", leave)).status.code == Code.UNRECOGNIZED_CLIENT_TYPE


async def test_impossible_settings_end_the_stream(client: GrpcClient) -> None:
    settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
    settings.subscription.group.name = "a b"
    with pytest.raises((TimeoutError, grpc.aio.AioRpcError)):
        async with asyncio.timeout(0.5):
            await client.report(settings)
    assert await client.status_of_stream() is grpc.StatusCode.INVALID_ARGUMENT


# --- messages ---


async def test_a_batch_has_an_entry_for_each_message(client: GrpcClient) -> None:
    await client.consume("G", "U")
    await client.receive("G", "U")  # a new group begins at the end
    sent = await client.send(*(message("U", b"%d" % n, message_id=f"0{n}") for n in range(3)))
    assert sent.status.code == Code.OK
    assert [entry.message_id for entry in sent.entries] == ["00", "01", "02"]
    assert [entry.offset for entry in sent.entries] == [0, 1, 2]
    received = await client.receive_all("G", "U", 3)
    assert [(each.body, each.system_properties.message_id) for each in received] == [
        (b"0", "00"),
        (b"1", "01"),
        (b"2", "02"),
    ]
    mixed = await client.send(message("U"), message("T"))
    assert (mixed.status.code, mixed.status.message) == (
        Code.MESSAGE_CORRUPTED,
        "topic in message is not same",
    )
    assert (await client.send()).status.message == "no message to send"


async def test_acknowledged_messages_are_gone_and_others_are_redelivered(client: GrpcClient) -> None:
    await client.consume("G", "U")
    await client.receive("G", "U")
    for number in range(2):
        await client.send(message("U", b"%d" % number, message_id=f"0{number}", tag="A", keys=["k"]))
    first, second = await client.receive_all("G", "U", 2, invisible_s=1)
    system = first.system_properties
    assert (system.tag, list(system.keys), system.delivery_attempt) == ("A", ["k"], 1)
    assert system.body_digest.checksum == "CFCD208495D565EF66E7DFF9F98764DA"  # MD5 of b"0"
    answer = await client.acknowledge("G", "U", first)
    assert [entry.status.code for entry in answer.entries] == [Code.OK]
    (again,) = await client.receive_all("G", "U", 1)
    assert (again.body, again.system_properties.delivery_attempt) == (b"1", 2)
    late = await client.acknowledge("G", "U", second, again)
    assert late.status.code == Code.MULTIPLE_RESULTS
    assert [entry.status.code for entry in late.entries] == [Code.INVALID_RECEIPT_HANDLE, Code.OK]
    assert late.entries[0].status.message == "receipt handle is expired"


async def test_a_receipt_is_valid_after_a_restart_of_the_proxy(cluster: RunningCluster) -> None:
    async with running_proxy(cluster.address) as proxy, grpc_client(proxy.address) as client:
        await client.consume("G", "U")
        await client.receive("G", "U")
        await client.send(message("U"))
        received = await client.receive_all("G", "U", 1)
    async with running_proxy(cluster.address) as proxy, grpc_client(proxy.address, "client-2") as client:
        system = received[0].system_properties
        change = rpc.ChangeInvisibleDurationRequest(
            group=resource("G"),
            topic=resource("U"),
            receipt_handle=system.receipt_handle,
            message_id=system.message_id,
        )
        change.invisible_duration.FromSeconds(60)
        changed = await client.call("ChangeInvisibleDuration", change)
        assert changed.status.code == Code.OK
        assert changed.receipt_handle.split(" ")[8] == system.receipt_handle.split(" ")[8]
        system.receipt_handle = changed.receipt_handle
        answer = await client.acknowledge("G", "U", *received)
        assert answer.status.code == Code.OK


async def test_an_open_transaction_outlives_the_proxy(cluster: RunningCluster) -> None:
    await _type_topic(cluster, "X", "TRANSACTION")
    async with running_proxy(cluster.address) as proxy, grpc_client(proxy.address) as client:
        await client.consume("G", "X")
        await client.receive("G", "X")
        sent = await client.send(message("X", message_type=pb.TRANSACTION))
        assert sent.status.code == Code.OK
    async with running_proxy(cluster.address) as proxy, grpc_client(proxy.address) as client:
        await client.consume("G", "X")
        end = rpc.EndTransactionRequest(
            topic=resource("X"),
            message_id="01ID",
            transaction_id=sent.entries[0].transaction_id,
            resolution=pb.COMMIT,
        )
        assert (await client.call("EndTransaction", end)).status.code == Code.OK
        (received,) = await client.receive_all("G", "X", 1)
        assert received.body == b"x"


async def test_compressed_bodies_reach_every_client(cluster: RunningCluster, client: GrpcClient) -> None:
    await client.consume("G", "U")
    await client.receive("G", "U")
    packed = gzip.compress(b"from a 5.x client")
    await client.send(message("U", packed, body_encoding=pb.GZIP))
    received = await client.receive_all("G", "U", 1)
    assert received[0].system_properties.body_encoding == pb.GZIP
    assert received[0].body == packed
    sent = await client.send(message("U", zlib.compress(b"as brokers' clients do"), body_encoding=pb.GZIP))
    assert sent.status.code == Code.OK
    received = await client.receive_all("G", "U", 1)
    assert received[0].system_properties.body_encoding == pb.IDENTITY
    assert received[0].body == b"as brokers' clients do"


async def test_filters_select_by_tag_and_by_sql(client: GrpcClient) -> None:
    await client.consume("G", "U")
    await client.receive("G", "U")
    for tag, size in (("A", "1"), ("B", "2")):
        made = message("U", tag.encode(), message_id=f"0{tag}", tag=tag)
        made.user_properties["size"] = size
        await client.send(made)
    by_tag = pb.FilterExpression(type=pb.TAG, expression="B || C")
    _, messages = await client.receive("G", "U", expression=by_tag)
    assert [each.body for each in messages] == [b"B"]
    refused, _ = await client.receive("G", "U", expression=pb.FilterExpression(type=pb.SQL))
    assert refused.code == Code.ILLEGAL_FILTER_EXPRESSION


async def test_a_queue_is_pulled_from_any_offset(client: GrpcClient) -> None:
    queue = pb.MessageQueue(topic=resource("U"), id=0, broker=pb.Broker(name="broker-a"))
    for number, tag in enumerate("AAB"):
        await client.send(message("U", b"%d" % number, message_id=f"0{number}", tag=tag))
    request = rpc.PullMessageRequest(group=resource("G"), message_queue=queue, batch_size=32)
    status, pulled, following = await client.pull(request)
    assert (status.code, [each.body for each in pulled], following) == (Code.OK, [b"0", b"1", b"2"], 3)
    request.filter_expression.type, request.filter_expression.expression = pb.TAG, "B"
    request.offset = 1
    assert [each.body for each in (await client.pull(request))[1]] == [b"2"]
    request.offset = 3
    status, pulled, following = await client.pull(request)
    assert (status.code, pulled, following) == (Code.MESSAGE_NOT_FOUND, [], 3)
    request.offset = 99
    status, _, following = await client.pull(request)
    assert (status.code, following) == (Code.ILLEGAL_OFFSET, 3)
    request.message_queue.broker.name = "unknown"
    assert (await client.pull(request))[0].code == Code.BAD_REQUEST


@pytest.mark.parametrize("size", [0, -1])
async def test_a_pull_asks_for_at_least_one_message(client: GrpcClient, size: int) -> None:
    queue = pb.MessageQueue(topic=resource("U"), id=0, broker=pb.Broker(name="broker-a"))
    request = rpc.PullMessageRequest(group=resource("G"), message_queue=queue, batch_size=size)
    status, _, _ = await client.pull(request)
    assert (status.code, "must be at least 1" in status.message) == (Code.BAD_REQUEST, True)


async def test_times_that_the_protocol_does_not_allow_are_refused_without_a_log_line(
    client: GrpcClient, caplog: pytest.LogCaptureFixture
) -> None:
    made = message("U")
    made.system_properties.born_timestamp.seconds = 1 << 62
    assert (await client.send(made)).status.code == Code.BAD_REQUEST
    queue = pb.MessageQueue(topic=resource("U"), id=0, broker=pb.Broker(name="broker-a"))
    query = rpc.QueryOffsetRequest(message_queue=queue, query_offset_policy=pb.TIMESTAMP)
    query.timestamp.nanos = -1
    assert (await client.call("QueryOffset", query)).status.code == Code.BAD_REQUEST
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_offsets_are_committed_and_queried(client: GrpcClient) -> None:
    queue = pb.MessageQueue(topic=resource("U"), id=0, broker=pb.Broker(name="broker-a"))
    get = rpc.GetOffsetRequest(group=resource("G"), message_queue=queue)
    assert (await client.call("GetOffset", get)).status.code == Code.OFFSET_NOT_FOUND
    for number in range(3):
        await client.send(message("U", message_id=f"0{number}"))
    commit = rpc.UpdateOffsetRequest(group=resource("G"), message_queue=queue, offset=2)
    assert (await client.call("UpdateOffset", commit)).status.code == Code.CONSUMER_GROUP_NOT_FOUND
    await client.consume("G", "U")
    await client.receive("G", "U")  # creates the group
    assert (await client.call("UpdateOffset", commit)).status.code == Code.OK
    answer = await client.call("GetOffset", get)
    assert (answer.status.code, answer.offset) == (Code.OK, 2)
    commit.offset = -1
    assert (await client.call("UpdateOffset", commit)).status.code == Code.ILLEGAL_OFFSET
    query = rpc.QueryOffsetRequest(message_queue=queue)
    found = {}
    for policy in (pb.BEGINNING, pb.END, pb.TIMESTAMP):
        query.query_offset_policy = policy
        if policy == pb.TIMESTAMP:
            assert (await client.call("QueryOffset", query)).status.code == Code.BAD_REQUEST
            query.timestamp.FromSeconds(1)
        found[policy] = (await client.call("QueryOffset", query)).offset
    assert found == {pb.BEGINNING: 0, pb.END: 3, pb.TIMESTAMP: 0}


async def test_the_deadline_must_leave_time_to_poll(cluster: RunningCluster) -> None:
    async with running_proxy(cluster.address, grpcClientConsumerMinLongPollingTimeoutMillis=5000) as proxy:
        for version, code in (("5.0.2", Code.BAD_REQUEST), ("5.0.3", Code.ILLEGAL_POLLING_TIME)):
            async with grpc_client(proxy.address, f"client-{version}", version) as client:
                await client.consume("G", "U")
                status, _ = await client.receive("G", "U", deadline=4)
                assert status.code == code


async def test_a_call_without_a_deadline_is_served(client: GrpcClient) -> None:
    await client.consume("G", "U")
    status, _ = await client.receive("G", "U", deadline=None)
    assert status.code == Code.MESSAGE_NOT_FOUND
    answer = await client.call("Heartbeat", rpc.HeartbeatRequest(group=resource("G")), deadline=None)
    assert answer.status.code == Code.OK


async def test_a_receive_waits_for_the_settings_of_its_client(client: GrpcClient) -> None:
    receiving = asyncio.ensure_future(client.receive("G", "U"))
    await asyncio.wait([receiving], timeout=0.2)
    assert not receiving.done()
    await client.consume("G", "U")
    status, _ = await receiving
    assert status.code == Code.MESSAGE_NOT_FOUND


async def test_a_consumer_of_an_earlier_proxy_is_served(client: GrpcClient) -> None:
    status, _ = await client.receive("G", "U")  # it reported its settings to a proxy that is gone
    assert status.code == Code.MESSAGE_NOT_FOUND
    answer = await client.call("Heartbeat", rpc.HeartbeatRequest(group=resource("G")))
    assert answer.status.code == Code.OK
    await client.send(message("U"))
    (received,) = await client.receive_all("G", "U", 1, renew=True)
    assert (await client.acknowledge("G", "U", received)).status.code == Code.OK


async def test_invisible_times_have_bounds(cluster: RunningCluster) -> None:
    async with (
        running_proxy(cluster.address, minInvisibleTimeMillsForRecv=10_000) as proxy,
        grpc_client(proxy.address) as client,
    ):
        await client.consume("G", "U")
        for seconds, text in ((9, "too small. min is 10000"), (43_201, "too large. max is 43200000")):
            status, _ = await client.receive("G", "U", invisible_s=seconds)
            assert status.code == Code.ILLEGAL_INVISIBLE_TIME and text in status.message


async def test_messages_for_a_client_that_has_gone_are_redelivered_soon(
    cluster: RunningCluster, client: GrpcClient
) -> None:
    await client.consume("G", "U")
    await client.receive("G", "U")
    held = asyncio.ensure_future(client.receive("G", "U", invisible_s=600, wait_s=10))
    broker = cluster.broker
    await until(lambda: broker.services.pops.held_pops.count > 0)
    held.cancel()
    await asyncio.wait([held])
    await client.send(message("U"))
    (received,) = await client.receive_all("G", "U", 1)
    assert received.body == b"x"


async def test_a_push_consumers_message_is_renewed_until_it_leaves(cluster: RunningCluster) -> None:
    times = {"renewSchedulePeriodMillis": 50, "renewAheadTimeMillis": 900, "defaultInvisibleTimeMills": 1000}
    async with (
        running_proxy(cluster.address, invisibleTimeMillisWhenClear=1, **times) as proxy,
        grpc_client(proxy.address) as client,
        grpc_client(proxy.address, "client-2") as other,
    ):
        await client.consume("G", "U", push=True)
        await other.consume("G", "U")
        await client.receive("G", "U", renew=True)
        await client.send(message("U"))
        received = await client.receive_all("G", "U", 1, renew=True)
        _, none = await other.receive("G", "U", wait_s=1.5)
        assert none == [], "the invisible time ended before the consumer did"
        leave = rpc.NotifyClientTerminationRequest(group=resource("G"))
        await client.call("NotifyClientTermination", leave)
        (again,) = await other.receive_all("G", "U", 1)
        assert again.system_properties.delivery_attempt == 2
        assert again.body == received[0].body
