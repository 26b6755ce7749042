"""The blocking classes, used from threads without a loop; the cluster has a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import rmq_client
from rmq_client import (
    ClientSettings,
    Message,
    MessageExt,
    MessageQueue,
    NotRunning,
    TopicNotFound,
    UsageError,
    blocking,
)
from tests.support.clusters import RunningCluster, cluster_in_a_thread
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until_in_thread

_QUEUE = MessageQueue("T", "broker-a", 0)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with cluster_in_a_thread(tmp_path, {"broker-a": {"T": 2}}) as cluster:
        yield cluster


def test_sending_and_reading(cluster: RunningCluster) -> None:
    with blocking.Producer(cluster.address, group="p") as producer:
        result = producer.send(Message("T", b"1"), queue=_QUEUE)
        assert result.queue_offset == 0
        assert len(producer.send_batch([Message("T", b"2"), Message("T", b"3")])) == 2
        with pytest.raises(TopicNotFound):
            producer.send(Message("Nowhere", b"x"))
        assert len(producer.queues("T")) == 2
    with blocking.PullConsumer(cluster.address, group="g", consume_from="first") as consumer:
        consumer.assign(consumer.queues("T"))
        bodies = set()
        for message in consumer:
            bodies.add(message.body)
            if len(bodies) == 3:
                break
        assert bodies == {b"1", b"2", b"3"}
        consumer.commit()
        assert sum(consumer.committed(queue) or 0 for queue in consumer.assigned_queues()) == 3
    with blocking.Admin(cluster.address) as admin:
        admin.create_topic("U", queues=1)
        assert {"T", "U"} <= set(admin.topics())


def test_request_and_reply(cluster: RunningCluster) -> None:
    def listen(messages: list[MessageExt]) -> None:
        for message in messages:
            producer.reply(message, b"re: " + message.body)

    with (
        blocking.Producer(cluster.address, group="p") as producer,
        blocking.PushConsumer(
            cluster.address, group="g", topics=["T"], listener=listen, consume_from="first"
        ),
    ):
        assert producer.request(Message("T", b"ping")).body == b"re: ping"


def test_a_function_listener(cluster: RunningCluster) -> None:
    got: list[MessageExt] = []
    consumer = blocking.PushConsumer(
        cluster.address, group="g", topics=["T"], listener=got.extend, consume_from="first"
    )
    with consumer, blocking.Producer(cluster.address, group="p") as producer:
        producer.send(Message("T", b"x"), queue=_QUEUE)
        until_in_thread(lambda: len(got) == 1)
        assert len(consumer.assigned_queues()) == 2
    assert cluster.broker.committed() == 1


def test_messages_of_a_failed_poll_are_not_committed(cluster: RunningCluster) -> None:
    with blocking.Producer(cluster.address, group="p") as producer:
        producer.send_batch([Message("T", b"%d" % number) for number in range(10)], queue=_QUEUE)
    with (
        pytest.raises(ZeroDivisionError),
        blocking.PullConsumer(cluster.address, group="g", consume_from="first", auto_commit=True) as consumer,
    ):
        consumer.assign([_QUEUE])
        assert (len(consumer.poll(4)), len(consumer.poll(3))) == (4, 3)
        raise ZeroDivisionError
    assert cluster.broker.committed() == 4


def test_commits_include_only_the_yielded_messages(cluster: RunningCluster) -> None:
    with blocking.Producer(cluster.address, group="p") as producer:
        producer.send_batch([Message("T", b"%d" % number) for number in range(10)], queue=_QUEUE)
    options: dict[str, Any] = {"group": "g", "consume_from": "first"}
    with blocking.PullConsumer(cluster.address, **options) as consumer:
        consumer.assign([_QUEUE])
        messages = iter(consumer)
        assert [next(messages).body for _ in range(3)] == [b"0", b"1", b"2"]
        assert consumer.position(_QUEUE) == 3
        consumer.commit()
        assert consumer.committed(_QUEUE) == 3
        assert [message.body for message in consumer.poll(2)] == [b"3", b"4"]
        assert next(messages).body == b"5"
        consumer.seek(_QUEUE, 1)
        assert next(messages).body == b"1"
    with blocking.PullConsumer(cluster.address, auto_commit=True, **options) as consumer:
        consumer.assign([_QUEUE])
        for message in consumer:
            if message.body == b"6":
                break
    assert cluster.broker.committed() == 7


def test_a_message_in_process_is_not_committed_after_an_error(cluster: RunningCluster) -> None:
    with blocking.Producer(cluster.address, group="p") as producer:
        producer.send_batch([Message("T", b"%d" % number) for number in range(10)], queue=_QUEUE)
    with (
        pytest.raises(ZeroDivisionError),
        blocking.PullConsumer(cluster.address, group="g", consume_from="first", auto_commit=True) as consumer,
    ):
        consumer.assign([_QUEUE])
        for message in consumer:
            if message.body == b"4":
                raise ZeroDivisionError
    assert cluster.broker.committed() == 4


def test_messages_cross_the_threads_many_at_a_time(cluster: RunningCluster) -> None:
    with blocking.Producer(cluster.address, group="p") as producer:
        producer.send_batch([Message("T", b"%d" % number) for number in range(20)], queue=_QUEUE)
    with blocking.PullConsumer(cluster.address, group="g", consume_from="first") as consumer:
        consumer.assign([_QUEUE])
        ahead = consumer._asyncio.read_ahead
        fills, fill = [], ahead.fill

        async def counted() -> None:
            fills.append(1)
            await fill()

        ahead.fill = counted
        messages = iter(consumer)
        assert [int(next(messages).body) for _ in range(20)] == list(range(20))
        assert len(fills) == 1


def test_a_simple_consumer_keeps_messages_that_were_not_yielded(cluster: RunningCluster) -> None:
    with blocking.Producer(cluster.address, group="p") as producer:
        producer.send_batch([Message("T", b"%d" % number) for number in range(4)], queue=_QUEUE)
    with blocking.SimpleConsumer(cluster.address, group="g", topics="T", consume_from="first") as consumer:
        messages = iter(consumer)
        consumer.ack(next(messages))
        rest = consumer.receive(timeout_seconds=5)
        assert len(rest) == 3
        assert {message.delivery_attempt for message in rest} == {1}


def test_many_sends_without_waiting(cluster: RunningCluster) -> None:
    with blocking.Producer(cluster.address, group="p") as producer:
        futures = [producer.send_nowait(Message("T", b"%d" % number)) for number in range(50)]
        assert len({future.result(10).msg_id for future in futures}) == 50
        with pytest.raises(TopicNotFound):
            producer.send_nowait(Message("Nowhere", b"x")).result(10)
        with pytest.raises(UsageError):
            producer.send_nowait(Message("T", b"")).result(10)
        last = producer.send_nowait(Message("T", b"last"))
    assert last.result(0).queue.topic == "T", "stop waits for it"


def test_an_object_that_was_not_stopped_is_reported(cluster: RunningCluster) -> None:
    producer = blocking.Producer(cluster.address, group="forgotten")
    producer.start()
    original = producer._asyncio
    with pytest.warns(ResourceWarning, match="Producer of group forgotten was not stopped"):
        original.__del__()
    producer.stop()
    original.__del__()


def test_a_callback_on_the_background_loop_makes_no_blocking_calls(cluster: RunningCluster) -> None:
    errors: list[Exception] = []
    settings = ClientSettings(route_refresh_seconds=0.05)
    with blocking.PullConsumer(cluster.address, group="g", settings=settings) as consumer:

        def changed(topic: str, queues: list[MessageQueue]) -> None:
            try:
                consumer.assign(queues)
            except Exception as error:
                errors.append(error)

        consumer.assign(consumer.listen_to_queues("T", changed))
        with blocking.Admin(cluster.address) as admin:
            admin.update_topic("T", read_queues=3, write_queues=3)
        until_in_thread(lambda: errors)
        assert isinstance(errors[0], UsageError)
        assert "make the call from another thread" in str(errors[0])
        assert len(consumer.assigned_queues()) == 2


def test_many_threads_share_a_producer(cluster: RunningCluster) -> None:
    with (
        blocking.Producer(cluster.address, group="p") as producer,
        ThreadPoolExecutor(8) as threads,
    ):
        results = list(threads.map(lambda n: producer.send(Message("T", b"%d" % n)), range(100)))
    assert len({result.msg_id for result in results}) == 100
    assert len(cluster.broker.messages()) == 100


def test_blocking_objects_work_inside_a_running_loop(cluster: RunningCluster) -> None:
    async def send() -> int:
        with blocking.Producer(cluster.address, group="p") as producer:
            return producer.send(Message("T", b"x")).queue_offset

    assert asyncio.run(send()) == 0


# Python 3.12 and later warn of any fork in a process with threads. Here the fork is the subject of the test.
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_starts_its_own_client(cluster: RunningCluster) -> None:
    with (
        blocking.Producer(cluster.address, group="p") as producer,
        blocking.PullConsumer(cluster.address, group="g") as consumer,
    ):
        producer.send(Message("T", b"parent"))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with blocking.Producer(cluster.address, group="p") as own:
                    own.send(Message("T", b"child"))
                with pytest.raises(NotRunning, match="create and start another one after the fork"):
                    producer.send(Message("T", b"never"))
                with pytest.raises(NotRunning, match="create and start another one after the fork"):
                    consumer.poll()
                producer.stop()
                consumer.stop()
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        producer.send(Message("T", b"parent again"))
    bodies = [message.body for message in cluster.broker.messages()]
    assert bodies == [b"parent", b"child", b"parent again"]


def test_the_blocking_classes_have_all_asyncio_methods() -> None:
    for name in ("Producer", "PushConsumer", "PullConsumer", "Admin"):
        original, face = getattr(rmq_client, name), getattr(blocking, name)
        methods = {
            method
            for method, value in inspect.getmembers(original, inspect.isfunction)
            if not method.startswith("_")
        }
        assert methods <= set(dir(face)), methods - set(dir(face))
        assert inspect.signature(face) == inspect.signature(original)


def test_no_threads_are_left(cluster: RunningCluster) -> None:
    with blocking.Producer(cluster.address, group="p") as producer:
        producer.send(Message("T", b"x"))
        assert [thread for thread in threading.enumerate() if thread.name.startswith("rmq-client")]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rmq-client")]
