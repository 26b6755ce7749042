"""Fill a store directory with the broker's own store, as fast as possible.

python -m benchmarks.filling DIR --messages 1000000 --record-bytes 256 --topics 1 --queues 4 [--set KEY=VALUE]

It runs in a separate process, so that its memory is free before the measurement begins. Each message has the
unique key `unique_key(number)`. The directory is left as after a clean stop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop

from rmq_broker.settings.broker import BrokerSettings
from rmq_broker.store.api import BatchMessages, MessageStore, RecordTemplate, pack_host
from tests.support.waiting import until

_HOST = pack_host("127.0.0.1", 10911)
# One append; a real broker's limit for a batch is 4 MiB.
_BATCH_BYTES = 256 * 1024
_INDEX_SECONDS = 600.0
TOPIC_PREFIX = "Filled"
_KEY_PREFIX = b"7F0000010001AAAA"


def topic_name(number: int) -> str:
    """Return the name of topic `number`."""
    return f"{TOPIC_PREFIX}-{number}"


def unique_key(number: int) -> bytes:
    """Return the unique key of message `number`, with 32 characters like the keys of clients."""
    return _KEY_PREFIX + b"%016X" % number


def fill_command(
    python: str, root: Path, settings: Mapping[str, str], amounts: Mapping[str, int]
) -> Sequence[str]:
    """Return the command line of this module."""
    words = [python, "-m", "benchmarks.filling", str(root)]
    for name, value in amounts.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    for key, setting in settings.items():
        words += ["--set", f"{key}={setting}"]
    return words


async def _fill(store: MessageStore, messages: int, record_bytes: int, topics: int, queues: int) -> None:
    store.start()
    targets = [(topic_name(number % topics), number // topics % queues) for number in range(topics * queues)]
    number = 0
    turn = 0
    while number < messages:
        topic, queue_id = targets[turn % len(targets)]
        turn += 1
        template = RecordTemplate(
            topic, queue_id, flag=0, sys_flag=0, reconsume_times=0, born_host_bytes=8, store_host=_HOST
        )
        properties_bytes = len(_properties(0))
        body = b"x" * max(1, record_bytes - template.fixed_bytes - properties_bytes)
        # Every queue gets messages, even if there are more queues than full batches.
        most = max(1, min(_BATCH_BYTES // record_bytes, -(-messages // len(targets))))
        count = min(most, messages - number)
        properties = [_properties(number + each) for each in range(count)]
        messages_now = BatchMessages([0] * count, [body] * count, properties, b"", [0] * count)
        store.put_batch(
            store.queues.get_or_create(topic, queue_id),
            template,
            messages_now,
            born_timestamp_ms=time.time_ns() // 1_000_000,
            born_host=_HOST,
        )
        number += count
        await asyncio.sleep(0)  # the store flushes and prepares its next file
        if number == count:
            # The index creates its first file now. Without a file it lags and then catches up slowly.
            await _index_is_there(store)
    await _index_is_there(store)
    await store.stop()


async def _index_is_there(store: MessageStore) -> None:
    await until(lambda: not store.index.statistics().behind_bytes, timeout_seconds=_INDEX_SECONDS)


def _properties(number: int) -> bytes:
    return b"UNIQ_KEY\x01" + unique_key(number) + b"\x02"


def write_topics(config: Path, topics: int, queues: int) -> None:
    """Write the file of the topics `topic_name(0)` and so on."""
    table = {
        topic_name(number): {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic_name(number),
            "topicSysFlag": 0,
            "writeQueueNums": queues,
        }
        for number in range(topics)
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": time.time_ns() // 1_000_000}
    config.mkdir(parents=True, exist_ok=True)
    (config / "topics.json").write_text(json.dumps({"dataVersion": version, "topicConfigTable": table}))


def main() -> None:
    """Fill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("root", type=Path, help="the store's folder")
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--record-bytes", type=int, default=256, help="of a message in the log (256)")
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--queues", type=int, default=4, help="of each topic (4)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting")
    chosen = parser.parse_args()
    settings = BrokerSettings.model_validate(
        {"brokerName": "filling", "storePathRootDir": str(chosen.root)}
        | dict(pair.split("=", maxsplit=1) for pair in chosen.set)
    )
    write_topics(settings.config_dir, chosen.topics, chosen.queues)
    store = MessageStore(settings, settings, settings)
    store.open()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_fill(store, chosen.messages, chosen.record_bytes, chosen.topics, chosen.queues))


if __name__ == "__main__":
    main()
