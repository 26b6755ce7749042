"""From thread to thread: nothing lost, nothing out of order, few wake-ups."""

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


async def test_items_come_in_order_and_in_batches() -> None:
    batches: list[list[int]] = []
    mailbox: Mailbox[int] = Mailbox(asyncio.get_running_loop(), batches.append)
    for number in range(5):
        mailbox.put(number)
    await until(lambda: batches)
    assert batches == [[0, 1, 2, 3, 4]]


async def test_what_is_put_while_others_are_delivered_comes_too() -> None:
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


async def test_nothing_is_lost_between_many_threads() -> None:
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


async def test_what_is_put_for_a_loop_that_has_ended_is_dropped() -> None:
    thread = LoopThread("short-lived")
    loop = await thread.ready()
    mailbox: Mailbox[int] = Mailbox(loop, lambda items: None)
    await thread.stop()
    mailbox.put(1)
    mailbox.put(2)


async def test_who_puts_learns_what_is_dropped_each_time() -> None:
    thread = LoopThread("short-lived")
    loop = await thread.ready()
    dropped: list[list[int]] = []
    mailbox: Mailbox[int] = Mailbox(loop, lambda items: None, dropped.append)
    await thread.stop()
    mailbox.put(1)
    mailbox.put(2)
    assert dropped == [[1], [2]]


async def test_requests_to_a_network_thread_that_has_ended_fail_at_once() -> None:
    thread = LoopThread("short-lived")
    loop = await thread.ready()
    connections = BrokerConnections(RemotingClient(Dispatcher()), _no_greeting)
    bridge = NetworkBridge(connections, loop, asyncio.get_running_loop())
    await thread.stop()
    for future in (bridge.send("127.0.0.1:1", 1, b"", 1.0), bridge.send_oneway("127.0.0.1:1", b"")):
        assert isinstance(future.exception(), NotRunning)


async def _no_greeting(*_: object) -> None:
    """Nobody is greeted."""
