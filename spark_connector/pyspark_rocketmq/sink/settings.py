"""Settings of one sink, derived from its options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rmq_client.settings import ClientSettings
from rmq_remoting.compression import CompressionType

if TYPE_CHECKING:
    from ..options.write_options import WriteOptions

# Larger than any body.
NEVER_BYTES: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """How a sink writes. Pickled to executors.

    A batch has at most `batch_rows` rows and `batch_bytes` bytes. A task has at most `max_in_flight` requests
    in flight. `request_timeout_seconds` limits one attempt. A task waits `broker_timeout_seconds` for a
    broker that is down, and `topic_timeout_seconds` for a topic that is missing. `write_id`: the name of a
    batch write in its row ids. `tune_worker`: see `worker_process.py`.
    """

    name_servers: str
    group: str
    topic: str | None = None
    batch_rows: int = 500
    batch_bytes: int = 1024 * 1024
    max_in_flight: int = 8
    compression: CompressionType | None = None
    compress_from_bytes: int = NEVER_BYTES
    request_timeout_seconds: float = 3.0
    broker_timeout_seconds: float = 120.0
    topic_timeout_seconds: float = 5.0
    dead_letter_topic: str | None = None
    dead_letter_path: str | None = None
    write_id: str | None = None
    tune_worker: bool = True
    client: ClientSettings = field(default_factory=ClientSettings)


def sink_settings(options: WriteOptions) -> SinkSettings:
    """Derive the settings from the options of a write."""
    compression = options.compression
    return SinkSettings(
        name_servers=options.name_servers,
        group=options.group,
        topic=options.topic,
        batch_rows=options.send_batch_size,
        batch_bytes=options.send_batch_bytes,
        max_in_flight=options.max_in_flight,
        compression=compression,
        compress_from_bytes=NEVER_BYTES if compression is None else options.compress_from_bytes,
        request_timeout_seconds=options.send_timeout_ms / 1000,
        broker_timeout_seconds=options.broker_timeout_ms / 1000,
        topic_timeout_seconds=options.topic_timeout_ms / 1000,
        dead_letter_topic=options.dead_letter_topic,
        dead_letter_path=options.dead_letter_path,
        write_id=options.write_id,
        tune_worker=options.tune_workers,
        client=options.client_settings,
    )
