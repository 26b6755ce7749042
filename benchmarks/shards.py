"""Sends per second and CPU per send of a broker without shards, and of `rmq-broker --shards` 1 and 2.

The load (`frame_replay.py`) replays sends that were encoded ahead, over some connections to each shard, each
with a batch of sends in flight. It shares the machine's cores with the shards. Its own CPU time is printed,
because a rate only tells what the shards can do while cores are left for them.

python -m benchmarks.shards                            a broker, 1 and 2 shards, three rounds in turns
python -m benchmarks.shards --shards 4 --rounds 5      other numbers; may be repeated
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.report import commit, processor, spread
from rmq_remoting.build_form import BUILD_FORM
from rmq_remoting.framing import encode_frame
from tests.support.broker_requests import create_topic, send, succeeded
from tests.support.own_servers import OwnBroker, OwnShards
from tests.support.processes import Usage, run_command
from tests.support.raw_client import raw_client

_TOPIC: Final = "Shards"
_QUEUES: Final = 8
_WARM_UP_SECONDS: Final = 2.0
_WITHOUT: Final = 0  # shards: a broker without a supervisor
_MICRO: Final = 1e6


@dataclass(frozen=True, slots=True)
class Load:
    """The sends, and how they are sent."""

    frames: Path
    seconds: float
    connections: int


@dataclass(frozen=True, slots=True)
class Window:
    """One measurement: all CPU times in seconds, of all threads."""

    seconds: float
    sends: int
    shards_cpu: float
    load_cpu: float
    supervisor_cpu: float

    @property
    def rate(self) -> float:
        """Sends per second."""
        return self.sends / self.seconds

    def per_send_us(self, cpu_seconds: float) -> float:
        """Return a CPU time in microseconds per send."""
        return cpu_seconds / self.sends * _MICRO


@dataclass(frozen=True, slots=True)
class _Running:
    ports: list[int]
    pids: list[int]
    supervisor: int | None

    def shards_cpu(self) -> float:
        return sum(Usage.of(pid).cpu_seconds for pid in self.pids)

    def supervisor_cpu(self) -> float:
        return 0.0 if self.supervisor is None else Usage.of(self.supervisor).cpu_seconds


@asynccontextmanager
async def _running(count: int) -> AsyncIterator[_Running]:
    """Run a number of shards, or a broker without a supervisor."""
    with tempfile.TemporaryDirectory(prefix="shards-") as folder:
        if count == _WITHOUT:
            async with OwnBroker("", home=Path(folder)) as broker:
                yield _Running([broker.port], [broker.process.pid], None)
                await broker.stop()
                return
        async with OwnShards("", count, home=Path(folder)) as shards:
            ports = [shards.port_of(number) for number in range(count)]
            yield _Running(ports, list(shards.pids().values()), shards.process.pid)
            await shards.stop()


async def measure(count: int, load: Load) -> Window:
    """Start the shards, create the topic on each, warm them up, and measure once."""
    async with _running(count) as running:
        for port in running.ports:
            async with raw_client(port) as client:
                succeeded(await client.ask(create_topic(_TOPIC, _QUEUES)))
        await _replay(running.ports, load, _WARM_UP_SECONDS)
        shards_before, supervisor_before = running.shards_cpu(), running.supervisor_cpu()
        seconds, sends, load_cpu = await _replay(running.ports, load, load.seconds)
        return Window(
            seconds,
            sends,
            running.shards_cpu() - shards_before,
            load_cpu,
            running.supervisor_cpu() - supervisor_before,
        )


async def _replay(ports: Sequence[int], load: Load, seconds: float) -> tuple[float, int, float]:
    command = [sys.executable, "-m", "benchmarks.frame_replay", str(load.frames), str(seconds)]
    ended = await run_command(
        [*command, str(load.connections), *map(str, ports)],
        timeout_s=seconds + 30,
        cwd=Path(__file__).parents[1],
    )
    if ended.exit_code != 0:
        raise RuntimeError(str(ended))
    result = json.loads(ended.stdout)
    return result["seconds"], sum(result["answers"]), result["cpu_seconds"]


def _frames(folder: Path, batch: int, body_bytes: int) -> Path:
    body = b"x" * body_bytes
    frames = [encode_frame(send(_TOPIC, body, queue_id=number % _QUEUES)) for number in range(batch)]
    file = folder / "frames"
    file.write_bytes(b"".join(frames))
    return file


def _table(windows: dict[int, list[Window]]) -> str:
    lines = [
        "| | sends per second | CPU of the shards per send, us | CPU of the load per send, us "
        "| cores: shards | cores: load | CPU of the supervisor, % of a core |",
        "|---|---|---|---|---|---|---|",
    ]
    for count, measured in windows.items():
        name = "a broker without a supervisor" if count == _WITHOUT else f"`--shards {count}`"
        cells = [
            spread([window.rate for window in measured], 0),
            spread([window.per_send_us(window.shards_cpu) for window in measured], 1),
            spread([window.per_send_us(window.load_cpu) for window in measured], 1),
            spread([window.shards_cpu / window.seconds for window in measured], 2),
            spread([window.load_cpu / window.seconds for window in measured], 2),
            spread([100 * window.supervisor_cpu / window.seconds for window in measured], 1),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


async def _run(options: argparse.Namespace) -> None:
    counts: list[int] = options.shards or [_WITHOUT, 1, 2]
    windows: dict[int, list[Window]] = {count: [] for count in counts}
    with tempfile.TemporaryDirectory(prefix="frames-") as folder:
        load = Load(
            _frames(Path(folder), options.batch, options.body_bytes), options.seconds, options.connections
        )
        for _ in range(options.rounds):
            for count in counts:
                windows[count].append(await measure(count, load))
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(
        f"Commit {commit()}, {processor()}, {BUILD_FORM}. Bodies of {options.body_bytes} bytes, "
        f"{options.connections} connections to each shard with {options.batch} sends in flight each. Median "
        f"and range of "
        f"{options.rounds} windows of {options.seconds:g} s.\n"
    )
    print(_table(windows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shards", type=int, action="append", help="a number of shards; 0: no supervisor")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a window, default 5")
    parser.add_argument("--connections", type=int, default=16, help="to each shard, default 16")
    parser.add_argument("--batch", type=int, default=16, help="sends in flight of a connection, default 16")
    parser.add_argument("--body-bytes", type=int, default=128, help="default 128")
    asyncio.run(_run(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
