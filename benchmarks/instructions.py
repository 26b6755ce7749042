"""`make bench-instructions`: the broker's instructions per request, a figure without noise.

The broker runs under valgrind's callgrind. This program replays requests of Apache's Java client, recorded in
tests/data/wire, over real connections, and counts instructions only while it does. The counts hardly depend
on the load of the machine. Two counts of the same code differ by up to four per cent, since the number of
requests that the loop reads at once varies.

python -m benchmarks.instructions                    all loads, both serializations
python -m benchmarks.instructions --only send        one load; may be repeated
python -m benchmarks.instructions --both-forms       our code interpreted, with the compiled form beside it
python -m benchmarks.instructions --against ../old   compare with another checkout
python -m benchmarks.instructions --functions 15     also the C functions with the most instructions
python -m benchmarks.instructions --python A --python B   only these interpreters, with our code installed
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.ours import environment_of
from benchmarks.report import commit, optimizations_of, paragraph, processor, python_build, write_between
from rmq_remoting.codes import FLAG_ONEWAY, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.framing import FrameDecoder, encode_frame
from rmq_remoting.message_ids import parse_offset_message_id
from tests.support.pop_requests import Popped, popped
from tests.support.ports import LOOPBACK, free_broker_port
from tests.support.processes import ServerProcess

_FRAMES: Final = Path(__file__).parents[1] / "tests/data/wire/frames.jsonl"
# The begin and end marks of the table in docs/performance.md.
INSTRUCTION_MARKS: Final = (
    "<!-- table of instructions: written by `make bench-instructions` -->",
    "<!-- end of the table of instructions -->",
)
PYTHON_MARKS: Final = (
    "<!-- table of Python versions: written by `python -m benchmarks.instructions --python ...` -->",
    "<!-- end of the table of Python versions -->",
)
SERIALIZATIONS: Final = {"ROCKETMQ": "binary headers", "JSON": "JSON headers"}
_CONNECTIONS: Final = 16
# The median of windows: how many requests the loop reads at once depends on the scheduling.
_WINDOWS: Final = 5
_QUEUES: Final = 8
_BODY: Final = bytes(range(128))
_BATCH: Final = 32
_PREPARED: Final = 48  # batches in each queue before pulls and pops
_BATCH_HEAD: Final = struct.Struct(">iiiii")
# The client's counter has 65,536 values. The warm-up passes all of this many.
_COUNTERS: Final = 512
_READY_WITHIN_SECONDS: Final = 240.0
_PYTHON_FACTS: Final = """\
import json, platform, sys, sysconfig
version = platform.python_version() + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else "")
print(json.dumps([version, sysconfig.get_config_var("CONFIG_ARGS") or "", sys.base_prefix]))
"""


@cache
def recorded(name: str, serialization: str) -> RemotingCommand:
    """Return a request of Apache's Java client 5.3.3, by its name in the recording."""
    for line in _FRAMES.read_text().splitlines():
        entry = json.loads(line)
        if entry["name"] == name and entry["serialization"] == serialization:
            (command,) = FrameDecoder().feed(bytes.fromhex(entry["hex"]))
            return command
    raise KeyError(f"no {serialization} frame {name!r} in {_FRAMES}")


class Requests:
    """Recorded requests with other request numbers, unique keys, offsets and bodies."""

    def __init__(self, serialization: str) -> None:
        self._serialization = serialization
        self._numbers = count(1000)
        self._keys = count(1)
        self._offsets = [count(0, _BATCH) for _ in range(_QUEUES)]
        self._popped: deque[Popped] = deque()
        self._halves: deque[dict[str, str]] = deque()  # the answers to half messages

    def send(self, queue_id: int) -> bytes:
        """A message of 128 B."""
        properties = f"UNIQ_KEY\x01{self._unique_key()}\x02WAIT\x01true\x02"
        return self._frame("send v2", _BODY, e=str(queue_id), i=properties)

    def batch(self, queue_id: int) -> bytes:
        """A batch of 32 messages of 128 B."""
        keys = [self._unique_key() for _ in range(_BATCH)]
        items = []
        for key in keys:
            own = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02".encode()
            size = _BATCH_HEAD.size + len(_BODY) + 2 + len(own)
            items.append(
                _BATCH_HEAD.pack(size, 0, 0, 0, len(_BODY)) + _BODY + struct.pack(">h", len(own)) + own
            )
        properties = f"WAIT\x01true\x02UNIQ_KEY\x01{','.join(keys)}\x02"
        return self._frame("send batch", b"".join(items), e=str(queue_id), i=properties)

    def pull(self, queue_id: int) -> bytes:
        """A pull that finds 32 messages of 128 B, and commits the offset that it begins at."""
        offset = str(next(self._offsets[queue_id]) % (_PREPARED * _BATCH))
        return self._frame(
            "pull",
            queueId=str(queue_id),
            queueOffset=offset,
            commitOffset=offset,
            subscription="",
            sysFlag="3",  # commit the offset, and wait for messages
        )

    def offset(self, queue_id: int) -> bytes:
        """A commit of an offset."""
        offset = str(next(self._offsets[queue_id]) % (_PREPARED * _BATCH))
        return self._frame("update consumer offset", queueId=str(queue_id), commitOffset=offset)

    def pop(self, queue_id: int) -> bytes:
        """A pop that finds 32 messages of 128 B in any queue."""
        born_ms = str(int(time.time() * 1000))
        return self._frame("pop", topic="TopicTest", maxMsgNums=str(_BATCH), bornTime=born_ms)

    def ack(self, queue_id: int) -> bytes:
        """The acknowledgement of a popped message."""
        item = self._popped.popleft()
        return self._frame(
            "ack",
            topic="TopicTest",
            queueId=str(item.queue_id),
            offset=str(item.offset),
            extraInfo=str(item.receipt),
        )

    def take_popped(self, answer: RemotingCommand) -> int:
        """Take the messages of a pop, to be acknowledged; return how many wait for that."""
        self._popped.extend(popped(answer))
        return len(self._popped)

    def half(self, queue_id: int) -> bytes:
        """A half message of 128 B."""
        key = self._unique_key()
        properties = f"TRAN_MSG\x01true\x02PGROUP\x01PG_tx\x02UNIQ_KEY\x01{key}\x02WAIT\x01true\x02"
        return self._frame(
            "send transactional half message", _BODY, b="TopicTest", e=str(queue_id), i=properties
        )

    def end(self, queue_id: int) -> bytes:
        """The commit of a half message. Clients send it as a one-way request; here it is answered."""
        half = self._halves.popleft()
        key = half["transactionId"]
        return self._frame(
            "end transaction commit",
            topic="TopicTest",
            commitLogOffset=str(parse_offset_message_id(half["msgId"]).physical_offset),
            tranStateTableOffset=half["queueOffset"],
            msgId=key,
            transactionId=key,
        )

    def take_half(self, answer: RemotingCommand) -> int:
        """Take the answer to a half message, to be committed; return how many wait for that."""
        self._halves.append(answer.ext_fields)
        return len(self._halves)

    def create_topic(self) -> bytes:
        """The creation of the topic of all loads."""
        queues = str(_QUEUES)
        return self._frame("create topic", readQueueNums=queues, writeQueueNums=queues, attributes="")

    def heartbeat(self) -> bytes:
        """A member of the consumer group of all loads, which reads all messages."""
        body: bytes = recorded("heartbeat", self._serialization).body
        for old, new in ((b'"TagA"]', b"]"), (b'"TagA"', b'"*"'), (b"[2598919]", b"[]")):
            body = body.replace(old, new)
        return self._frame("heartbeat", body)

    def _unique_key(self) -> str:
        """Return the next key of a client that sends 32 messages in a millisecond."""
        number = next(self._keys)
        return f"0A000003162E18B4AAC2{number // 32:08X}{number % _COUNTERS:04X}"

    def _frame(self, name: str, body: bytes = b"", **fields: str) -> bytes:
        original = recorded(name, self._serialization)
        assert original.ext_fields.keys() >= fields.keys(), (name, original.ext_fields)
        return encode_frame(
            RemotingCommand(
                original.code,
                original.flag & ~FLAG_ONEWAY,
                next(self._numbers),
                original.language,
                original.version,
                ext_fields={**original.ext_fields, **fields},
                body=body,
                serialization=original.serialization,
            )
        )


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of one kind: `rounds` on every connection are counted, in windows, after `warm_up` rounds."""

    request: str  # name of the method of Requests
    messages: int  # that one request sends or gets
    rounds: int
    warm_up: int
    reads: bool = False
    flushed: bool = False  # answers wait until the messages are on disk (SYNC_FLUSH)
    pipelined: int = 1  # requests that each connection sends in one write

    def requests(self, rounds: int) -> int:
        """The number of requests in some rounds."""
        return rounds * _CONNECTIONS * self.pipelined

    @property
    def counted(self) -> int:
        """The number of requests in a window."""
        return self.requests(self.rounds // _WINDOWS)

    @property
    def all(self) -> int:
        """The number of requests in all."""
        return self.requests(self.warm_up + self.rounds)


LOADS: Final = {
    "send": Load("send", 1, 200, 60),
    "flushed-send": Load("send", 1, 200, 60, flushed=True),
    "batch": Load("batch", _BATCH, 40, 20),
    "pull": Load("pull", _BATCH, 60, 30, reads=True),
    "offset": Load("offset", 1, 200, 60, reads=True),
    "pop": Load("pop", _BATCH, 15, 6, reads=True),
    "ack": Load("ack", 1, 100, 30, reads=True),
    "16 acks in a write": Load("ack", 1, 10, 2, reads=True, pipelined=16),
    "half": Load("half", 1, 200, 60),
    "end": Load("end", 1, 200, 60),
}


@dataclass(frozen=True, slots=True)
class Subject:
    """An interpreter to measure, and the environment in which it finds our code."""

    python: Path
    environment: Mapping[str, str]

    @classmethod
    def of_checkout(cls, checkout: Path | None) -> Subject:
        """This interpreter, with the code of a checkout or of an installed wheel; None: of this program."""
        return cls(Path(sys.executable), environment_of(checkout))

    @classmethod
    def interpreted(cls) -> Subject:
        """This interpreter, with the sources of this program's checkout."""
        return cls(Path(sys.executable), {**environment_of(None), "RMQ_COMPILE": "0"})

    @classmethod
    def installed(cls, python: Path) -> Subject:
        """An interpreter with our code among its packages."""
        environment = environment_of(None)
        environment.pop("PYTHONPATH", None)
        return cls(python, environment)

    @property
    def rmq_broker(self) -> str:
        """The path of the broker's command."""
        return str(self.python.parent / "rmq-broker")

    def build(self) -> Build:
        """Return what the interpreter says of itself and of our code."""
        command = [self.rmq_broker, "--version"]
        told = subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True)
        form = told.stdout.partition("(")[2].partition(",")[0]
        command = [str(self.python), "-c", _PYTHON_FACTS]
        told = subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True)
        version, options, prefix = json.loads(told.stdout)
        return Build(f"{version}, {optimizations_of(options, prefix)}", form)


@dataclass(frozen=True, slots=True)
class Build:
    """An interpreter and the form of our code, as the table of Python versions names them."""

    python: str  # version and optimizations
    form: str  # interpreted or compiled


class Broker:
    """A broker whose instructions are counted, and connections to it."""

    def __init__(self, process: ServerProcess, counts: Path, port: int) -> None:
        self._process, self._counts, self._port = process, counts, port
        self._dumps = count(1)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def connect(self) -> None:
        """Open the connections."""
        self._links = [await asyncio.open_connection(LOOPBACK, self._port) for _ in range(_CONNECTIONS)]

    def close(self) -> None:
        """Close the connections."""
        for _, writer in self._links:
            writer.close()

    async def ask(self, frame: bytes, connection: int = 0) -> RemotingCommand:
        """Send one request and return the answer. Raises RuntimeError if it fails."""
        self._links[connection][1].write(frame)
        return await self._answer(connection)

    async def _ask_all(self, frames: Sequence[bytes], connection: int) -> None:
        """Send requests in one write and await the answers. Raises RuntimeError if one fails."""
        self._links[connection][1].write(b"".join(frames))
        for _ in frames:
            await self._answer(connection)

    async def _answer(self, connection: int) -> RemotingCommand:
        reader, _ = self._links[connection]
        while True:
            head = await reader.readexactly(4)
            rest = await reader.readexactly(int.from_bytes(head, "big"))
            (answer,) = FrameDecoder().feed(head + rest)
            if answer.is_response:  # not a notice that the group's members have changed
                break
        if answer.code != ResponseCode.SUCCESS:
            raise RuntimeError(f"the broker answered {answer.code}: {answer.remark}")
        return answer

    async def prepare(self, requests: Requests, load: Load) -> None:
        """Store what a load reads, and send the requests of its warm-up."""
        await self.ask(requests.create_topic())
        if load.reads:
            for queue_id in list(range(_QUEUES)) * _PREPARED:
                await self.ask(requests.batch(queue_id))
        for connection in range(_CONNECTIONS):
            await self.ask(requests.heartbeat(), connection)
        if load.request == "ack":
            while requests.take_popped(await self.ask(requests.pop(0))) < load.all:
                pass
        if load.request == "end":
            for each in range(load.all):
                requests.take_half(await self.ask(requests.half(each % _QUEUES)))
        await self.run(requests, load, load.warm_up)

    async def run(self, requests: Requests, load: Load, rounds: int) -> None:
        """Send requests on each connection, wait for all answers, and repeat."""
        make = getattr(requests, load.request)
        lines = [
            [[make(each % _QUEUES) for _ in range(load.pipelined)] for each in range(_CONNECTIONS)]
            for _ in range(rounds)
        ]
        for line in lines:
            await asyncio.gather(*(self._ask_all(frames, number) for number, frames in enumerate(line)))

    async def instructions(self, requests: Requests, load: Load) -> float:
        """Return the instructions per request of a load: the median of its windows."""
        counts = [await self._window(requests, load) for _ in range(_WINDOWS)]
        return statistics.median(counts) / load.counted

    async def _window(self, requests: Requests, load: Load) -> int:
        self._control("-i", "on")
        await self.run(requests, load, load.rounds // _WINDOWS)
        self._control("-i", "off")
        self._control("--dump")
        dump = self.dump(next(self._dumps))
        for line in dump.read_text().splitlines():
            if line.startswith("totals:"):
                return int(line.split()[1])
        raise RuntimeError(f"no totals in {dump}")

    def dump(self, number: int) -> Path:
        """Return the file of the dump with a number."""
        return self._counts.with_name(f"{self._counts.name}.{number}")

    def _control(self, *options: str) -> None:
        command = ["callgrind_control", *options, str(self._process.pid)]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def _under_callgrind(subject: Subject, counts: Path) -> list[str]:
    """Return the beginning of a broker's command; callgrind's dumps get this path and a number."""
    valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={counts}"]
    return [*valgrind, str(subject.python), subject.rmq_broker]


@asynccontextmanager
async def broker(
    subject: Subject, load: Load, counting: Callable[[Subject, Path], list[str]] = _under_callgrind
) -> AsyncIterator[Broker]:
    """Run a broker by the command that `counting` returns, and connect to it."""
    home = Path(tempfile.mkdtemp(prefix="rmq-bench-"))
    counts = home / "counts"
    port = free_broker_port()
    settings = {
        "listenPort": port,
        "brokerIP1": LOOPBACK,
        "brokerName": "broker-a",  # that of the recording
        "metricsPromExporterPort": 0,
        "mappedFileSizeCommitLog": 64 << 20,
        "flushConsumerOffsetInterval": 3_600_000,  # nothing periodic is to be counted
        # Nor the entries of messages that were sent before.
        "messageIndexEnable": str(not load.reads).lower(),
        "flushDiskType": "SYNC_FLUSH" if load.flushed else "ASYNC_FLUSH",
    }
    command = [*counting(subject, counts), "--store", str(home / "store")]
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    # The order of sets and dictionaries of strings would vary the counts.
    environment = {**subject.environment, "PYTHONHASHSEED": "0"}
    process = ServerProcess([*command, *options], log_path=home / "broker.log", environment=environment)
    try:
        deadline = time.monotonic() + _READY_WITHIN_SECONDS
        while not process.says_ready:
            if process.exit_code is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the broker is not ready: {process.log_tail()}")
            await asyncio.sleep(0.1)
        running = Broker(process, counts, port)
        await running.connect()
        yield running
        running.close()
    finally:
        process.kill()
        shutil.rmtree(home, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Counted:
    """The result of a load."""

    load: str
    serialization: str
    per_request: float
    functions: Sequence[str]


async def measure(
    subject: Subject, names: Sequence[str], serializations: Sequence[str], functions: int
) -> list[Counted]:
    """Run loads, each with a broker of its own."""
    results = []
    for name in names:
        for serialization in serializations:
            load = LOADS[name]
            async with broker(subject, load) as running:
                requests = Requests(serialization)
                await running.prepare(requests, load)
                per_request = await running.instructions(requests, load)
                top = list(_functions(running.dump(1), functions)) if functions else []
            what = f"{subject.python}: {name}, {SERIALIZATIONS[serialization]}"
            print(f"{what}: {per_request:,.0f} instructions", flush=True)
            print("".join(f"  {line}\n" for line in top), end="", flush=True)
            results.append(Counted(name, serialization, per_request, top))
    return results


def _functions(dump: Path, number: int) -> Iterator[str]:
    """The C functions with the most instructions."""
    command = ["callgrind_annotate", "--threshold=100", str(dump)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    lines = [line for line in output.splitlines() if "%)" in line and ":" in line]
    for line in lines[:number]:
        yield " ".join(line.split())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=LOADS, help="a load; may be repeated")
    parser.add_argument("--serialization", choices=SERIALIZATIONS, help="only this serialization")
    parser.add_argument("--against", type=Path, help="compare with another checkout, or an installed wheel")
    parser.add_argument("--both-forms", action="store_true", help="compare interpreted and compiled")
    parser.add_argument("--python", type=Path, action="append", help="an interpreter; may be repeated")
    parser.add_argument("--jobs", type=int, default=1, help="interpreters that are measured at a time")
    parser.add_argument("--functions", type=int, default=0, help="C functions to print")
    parser.add_argument("--write", type=Path, help="file for the table")
    chosen = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is needed (Debian: apt-get install valgrind)")
    names = chosen.only or list(LOADS)
    serializations = [chosen.serialization] if chosen.serialization else list(SERIALIZATIONS)

    def counted(subject: Subject) -> list[Counted]:
        return asyncio.run(measure(subject, names, serializations, chosen.functions))

    marks, conditions = INSTRUCTION_MARKS, f"Counted on {datetime.now(UTC):%Y-%m-%d} at commit {commit()}"
    if chosen.python:
        subjects = [Subject.installed(python) for python in chosen.python]
        marks, conditions = PYTHON_MARKS, f"{conditions} ({processor()})."
        with ThreadPoolExecutor(chosen.jobs) as threads:
            results = list(threads.map(counted, subjects))
        builds = [subject.build() for subject in subjects]
        table = table_of_pythons(list(zip(builds, results, strict=True)))
    elif chosen.both_forms:
        conditions = f"{conditions}: Python {Subject.interpreted().build().python}. The first two counts are"
        conditions += " those of the interpreted form; the ratio is interpreted / compiled."
        table = _table(counted(Subject.interpreted()), counted(Subject.of_checkout(None)), "compiled")
    else:
        ours = counted(Subject.of_checkout(None))
        peer = counted(Subject.of_checkout(chosen.against)) if chosen.against else []
        conditions = f"{conditions}: {python_build()}."
        table = _table(ours, peer, "before")
    print(f"\n{table}")
    if chosen.write is not None:
        write_between(chosen.write, marks, f"{paragraph(conditions)}\n\n{table}")


def table_of_pythons(builds: Sequence[tuple[Build, Sequence[Counted]]]) -> str:
    """Return the instructions per request by build in Markdown, with the ratios to the first build."""
    _, first = builds[0]
    base = {(each.load, each.serialization): each.per_request for each in first}
    loads = list(dict.fromkeys(load for load, _ in base))
    lines = [f"| Python | our code | headers | {' | '.join(loads)} |", "|---" * (3 + len(loads)) + "|"]
    for serialization in dict.fromkeys(serialization for _, serialization in base):
        for build, results in builds:
            cells = [
                f"{each.per_request:,.0f} ({each.per_request / base[each.load, serialization]:.2f})"
                for each in results
                if each.serialization == serialization
            ]
            headers = SERIALIZATIONS[serialization]
            lines.append(f"| {build.python} | {build.form} | {headers} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _table(ours: Sequence[Counted], peer: Sequence[Counted], peer_name: str) -> str:
    """Return the counts in Markdown, with those of another checkout beside them, if there are any."""
    lines = ["| request | headers | instructions | per message |", "|---|---|---|---|"]
    if peer:
        lines[0] += f" {peer_name} | ratio |"
        lines[1] += "---|---|"
    for number, result in enumerate(ours):
        per_message = result.per_request / LOADS[result.load].messages
        line = f"| {result.load} | {SERIALIZATIONS[result.serialization]} |"
        line += f" {result.per_request:,.0f} | {per_message:,.0f} |"
        if peer:
            other = peer[number].per_request
            line += f" {other:,.0f} | {result.per_request / other:.3f} |"
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
