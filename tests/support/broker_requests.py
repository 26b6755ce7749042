"""Requests of clients to brokers, one call each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rmq_remoting.bodies.heartbeat import (
    SUBSCRIBE_ALL,
    TAG_EXPRESSION,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rmq_remoting.headers.send import SendMessageRequestHeader, SendMessageResponseHeader, SendTarget
from rmq_remoting.headers.topic import CreateTopicRequestHeader
from rmq_remoting.java_hash import string_hash_code
from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_batch import encode_batch
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.message_properties import encode_properties
from rmq_remoting.sys_flags import PullSysFlag
from tests.support.raw_client import RawClient

BORN_MS = 1_700_000_000_123
_LONG_NAMES_CODE = RequestCode.SEND_MESSAGE


def send(
    topic: str,
    body: bytes = b"body",
    *,
    queue_id: int = 0,
    properties: Mapping[str, str] | bytes = b"",
    code: int = RequestCode.SEND_MESSAGE_V2,
    serialization: Serialization = Serialization.BINARY,
    oneway: bool = False,
    group: str = "PG",
    default_topic: str = "TBW102",
    default_queue_nums: int = 4,
    born_ms: int = BORN_MS,
    sys_flag: int = 0,
    flag: int = 0,
    reconsume_times: int = 0,
    unit_mode: bool = False,
    batch: bool = False,
) -> RemotingCommand:
    """A send of one message (`batch`: of the messages that the body is made of)."""
    target = SendTarget(
        group,
        topic,
        default_topic,
        default_queue_nums,
        queue_id,
        sys_flag,
        flag,
        reconsume_times,
        unit_mode,
        batch=batch,
    )
    raw = properties if isinstance(properties, bytes) else encode_properties(properties)
    header = SendMessageRequestHeader(target, born_ms, raw)
    fields = header.encode_v1() if code == _LONG_NAMES_CODE else header.encode_v2()
    return RemotingCommand.request(code, fields, body, oneway=oneway, serialization=serialization)


def send_batch(
    topic: str,
    messages: Iterable[Message] | bytes,
    *,
    properties: Mapping[str, str] | bytes = b"",
    queue_id: int = 0,
) -> RemotingCommand:
    """A send of several messages, or of the bytes that stand for them."""
    body = messages if isinstance(messages, bytes) else encode_batch(messages)
    return send(
        topic,
        body,
        properties=properties,
        queue_id=queue_id,
        code=RequestCode.SEND_BATCH_MESSAGE,
        batch=True,
    )


def succeeded(answer: RemotingCommand) -> RemotingCommand:
    """Return the answer; AssertionError with code and remark if the request was refused."""
    assert answer.code == ResponseCode.SUCCESS, f"{answer.code}: {answer.remark}"
    return answer


def sent(answer: RemotingCommand) -> SendMessageResponseHeader:
    """Return where a message was stored; AssertionError with the remark if it was not."""
    return SendMessageResponseHeader.decode(succeeded(answer).ext_fields)


def pull(
    topic: str,
    group: str = "CG",
    *,
    queue_id: int = 0,
    offset: int = 0,
    count: int = 32,
    subscription: str | None = SUBSCRIBE_ALL,
    sub_version: int = 0,
    expression_type: str | None = "TAG",
    suspend_ms: int | None = None,
    commit: int | None = None,
    code: int = RequestCode.PULL_MESSAGE,
    serialization: Serialization = Serialization.BINARY,
) -> RemotingCommand:
    """A pull, held for `suspend_ms` if there is no message; `subscription=None`: that of the heartbeat."""
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=PullSysFlag.build(
            commit_offset=commit is not None,
            suspend=suspend_ms is not None,
            subscription=subscription is not None,
        ),
        commit_offset=commit or 0,
        suspend_timeout_ms=suspend_ms or 0,
        subscription=subscription,
        sub_version=sub_version,
        expression_type=expression_type,
        max_msg_bytes=None,
    )
    return RemotingCommand.request(code, header.encode(), serialization=serialization)


def pulled(answer: RemotingCommand) -> list[MessageExt]:
    """Return the messages that a pull found; AssertionError with the remark if it found none."""
    return decode_messages(succeeded(answer).body, check_crc=True)


def offsets(answer: RemotingCommand) -> tuple[int, int, int]:
    """Return the next, the lowest and the highest offset of a pull's answer."""
    header = PullMessageResponseHeader.decode(answer.ext_fields)
    return header.next_begin_offset, header.min_offset, header.max_offset


def heartbeat(
    client_id: str,
    group: str | None = "CG",
    subscriptions: Mapping[str, str] | None = None,
    *,
    producer_groups: Sequence[str] = (),
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
    message_model: MessageModel = MessageModel.CLUSTERING,
    sub_version: int = 0,
    expression_type: str = TAG_EXPRESSION,
    serialization: Serialization = Serialization.JSON,
) -> RemotingCommand:
    """A heartbeat of a consumer (`subscriptions`: expression by topic) and of producers."""
    consumer = ConsumerData(
        group_name=group or "",
        consume_type=consume_type,
        message_model=message_model,
        subscription_data_set=[
            _subscription(topic, expression, sub_version, expression_type)
            for topic, expression in (subscriptions or {}).items()
        ],
    )
    body = HeartbeatData(
        client_id=client_id,
        consumer_data_set=[consumer] if group else [],
        producer_data_set=[ProducerData(group_name=name) for name in producer_groups],
    )
    return RemotingCommand.request(RequestCode.HEART_BEAT, body=body.encode(), serialization=serialization)


async def ask_among_notifications(
    client: RawClient, command: RemotingCommand
) -> tuple[RemotingCommand, list[RemotingCommand]]:
    """Send a request; return its answer, and the broker's own requests received before it."""
    client.send(command)
    notifications: list[RemotingCommand] = []
    while not (received := await client.receive()).is_response:
        notifications.append(received)
    assert received.opaque == command.opaque
    return received, notifications


def create_topic(
    topic: str, queues: int = 4, *, perm: int = 6, order: bool = False, write: int | None = None
) -> RemotingCommand:
    """Create or update a topic."""
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues if write is None else write,
        perm=perm,
        topic_filter_type="SINGLE_TAG",
        order=order,
    )
    return RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header.encode())


def request(code: int, body: bytes = b"", /, **fields: object) -> RemotingCommand:
    """Any request; fields by their names on the wire."""
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()
    }
    return RemotingCommand.request(code, texts, body)


def _subscription(topic: str, expression: str, version: int, expression_type: str) -> SubscriptionData:
    without_tags = expression == SUBSCRIBE_ALL or expression_type != TAG_EXPRESSION
    tags = [] if without_tags else [tag.strip() for tag in expression.split("||")]
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        expression_type=expression_type,
        sub_version=version,
        tags_set=tags,
        code_set=[string_hash_code(tag) for tag in tags],
    )
