"""The bridge between threads: no lost items, order, few wake-ups."""

from __future__ import annotations

import asyncio
import threading

from rmq_client.errors import NotRunning
from rmq_client.loop_thread import LoopThread
from rmq_client.network.bridge import NetworkBridge
from rmq_client.network.connections import BrokerConnections
from rmq_client.network.mailbox import Mailbox
from rmq_remoting.client import RemotingClient
from rmq_remoting.dispatch import Dispatcher
from tests.support.waiting import loop_passes, until


async def test_mailbox_items_arrive_in_order_and_in_batches() -> None:
    batches: list[list[int]] = []
    mailbox: Mailbox[int] = Mailbox(asyncio.get_running_loop(), batches.append)
    for number in range(5):
        mailbox.put(number)
    await until(lambda: batches)
    assert batches == [[0, 1, 2, 3, 4]]


async def test_items_put_during_a_delivery_are_delivered() -> None:
    batches: list[list[int]] = []

    def deliver(items: list[int]) -> None:
        batches.append(items)
        if items[-1] < 3:
            mailbox.put(items[-1] + 1)

    mailbox: Mailbox[int] = Mailbox(asyncio.get_running_loop(), deliver)
    mailbox.put(0)
    await until(lambda: len(batches) == 4)
    await loop_passes()
    assert batches == [[0], [1], [2], [3]]


async def test_mailbox_loses_no_item_of_many_threads() -> None:
    got: list[tuple[int, int]] = []
    mailbox: Mailbox[tuple[int, int]] = Mailbox(asyncio.get_running_loop(), got.extend)

    def put(thread: int) -> None:
        for number in range(2000):
            mailbox.put((thread, number))

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    await until(lambda: len(got) == 8000)
    for number in range(4):
        assert [item for thread, item in got if thread == number] == list(range(2000))
    for thread in threads:
        thread.join()


async def test_items_for_an_ended_loop_are_dropped() -> None:
    thread = LoopThread("short-lived")
    loop = await thread.ready()
    mailbox: Mailbox[int] = Mailbox(loop, lambda items: None)
    await thread.stop()
    mailbox.put(1)
    mailbox.put(2)


async def test_put_reports_dropped_items() -> None:
    thread = LoopThread("short-lived")
    loop = await thread.ready()
    dropped: list[list[int]] = []
    mailbox: Mailbox[int] = Mailbox(loop, lambda items: None, dropped.append)
    await thread.stop()
    mailbox.put(1)
    mailbox.put(2)
    assert dropped == [[1], [2]]


async def test_requests_fail_at_once_after_the_end_of_the_network_thread() -> None:
    thread = LoopThread("short-lived")
    loop = await thread.ready()
    connections = BrokerConnections(RemotingClient(Dispatcher()), _no_heartbeat)
    bridge = NetworkBridge(connections, loop, asyncio.get_running_loop())
    await thread.stop()
    for future in (bridge.send("127.0.0.1:1", 1, b"", 1.0), bridge.send_oneway("127.0.0.1:1", b"")):
        assert isinstance(future.exception(), NotRunning)


async def _no_heartbeat(*_: object) -> None:
    """Send no heartbeat."""
