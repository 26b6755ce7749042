"""Send a message and read it back without asyncio.

python examples/quickstart_blocking.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import sys

from rmq_client import Message
from rmq_client.blocking import Producer, PullConsumer


def main(namesrv: str, topic: str) -> None:
    with Producer(namesrv, group="quickstart-producer") as producer:
        sent = producer.send(Message(topic, b"hello without a loop"))
        print(f"sent {sent.msg_id}")
    with PullConsumer(namesrv, group="quickstart-blocking", consume_from="first") as consumer:
        consumer.assign([sent.queue])
        consumer.seek(sent.queue, sent.queue_offset)
        for message in consumer:
            print(f"read {message.msg_id}: {message.body.decode()}")
            break


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "quickstart"))
