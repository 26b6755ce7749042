"""A process that stores messages until it is killed, and prints each stored one.

Arguments: the store's folder and a seed. It prints `open`, then a line for each stored message or batch:
topic, queue id, queue offset and number of the first message, and count. A body is a number.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from rmq_broker.store.api import MessageStore
from tests.support.stores import new_store, put, put_batch

_MESSAGES_BETWEEN_LOOP_PASSES = 20


async def main(root: Path, seed: int) -> None:
    store = new_store(root, flushIntervalCommitLog=3, flushIntervalConsumeQueue=6)
    os.write(1, b"open\n")
    store.open()
    store.start()
    chance = random.Random(seed)
    number = seed << 32
    while True:
        for _ in range(_MESSAGES_BETWEEN_LOOP_PASSES):
            number = _store_some(store, chance, number)
        await asyncio.sleep(0)


def _store_some(store: MessageStore, chance: random.Random, number: int) -> int:
    topic, queue_id = f"Topic{chance.randrange(2)}", chance.randrange(3)
    if chance.random() < 0.7:
        numbers = [number]
        padding = b" " * chance.choice((0, 10, 500, 5_000))
        _, offset = put(store, b"%d%b" % (number, padding), topic, queue_id, tags="TagA")
    else:
        numbers = list(range(number, number + chance.randrange(2, 40)))
        _, offset = put_batch(store, [b"%d" % each for each in numbers], topic, queue_id)
    os.write(1, f"{topic} {queue_id} {offset} {numbers[0]} {len(numbers)}\n".encode())
    return numbers[-1] + 1


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
