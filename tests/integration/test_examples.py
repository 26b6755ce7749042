"""The examples of single features print what they promise. (The quick starts: `test_client_examples.py`.)"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.clusters import cluster_in_a_thread

pytestmark = pytest.mark.thorough

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_SETTINGS = {
    "autoCreateTopicEnable": "true",
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "messageDelayLevel": "1s 5s 10s",
}
Run = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster_in_a_thread(tmp_path_factory.mktemp("cluster"), {"broker-a": {}}, **_SETTINGS) as cluster:
        yield cluster.address


@pytest.fixture
def run(address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run an example in this process, and return the lines that it prints."""

    def run(name: str) -> list[str]:
        path = _EXAMPLES / f"{name}.py"
        monkeypatch.setattr("sys.argv", [str(path), address])
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


def test_administration(run: Run) -> None:
    brokers, *queues, by_key, by_id, lag_0, lag_1 = run("administration")
    assert brokers == "brokers: broker-a"
    assert len(queues) == 2
    assert (by_key, by_id) == ("by key: order 9", "by id: order 9")
    assert sorted(int(line.split()[-1]) for line in (lag_0, lag_1)) == [0, 5]


def test_batching(run: Run) -> None:
    one_by_one, batched, batch = run("batching")
    assert one_by_one.startswith("one by one: 500 messages in ")
    assert batched.startswith("batched by the producer: 500 messages in ")
    offsets = re.fullmatch(r"one batch: offsets (\d+) to (\d+) of queue \d", batch)
    assert offsets is not None
    assert int(offsets[2]) - int(offsets[1]) == 499


def test_broadcasting(run: Run) -> None:
    assert sorted(run("broadcasting")) == [f"cache-{number} drops price of apples" for number in (1, 2)]


def test_dead_letters(run: Run) -> None:
    first = run("dead_letters")
    assert sorted(first[:2]) == ["consumed: order 2", "refused: order 1"]
    assert first[2:] == ["sent again: order 1", "consumed: order 1"]
    assert run("dead_letters")[2:] == first[2:]  # finds the new dead letter alone


def test_deduplication(run: Run) -> None:
    assert run("deduplication") == [
        "order-1 not paid: the bank is closed",
        "order-1 paid",
        "order-2 paid",
        "attempts: 3",
    ]


def test_delayed_messages(run: Run) -> None:
    lines = [re.fullmatch(r"after (\d+\.\d) s: (.*)", line) for line in run("delayed_messages")]
    found = {line[2]: float(line[1]) for line in lines if line is not None}
    assert set(found) == {"without a delay", "delay level 1 (1 s)", "a delay of 2 s", "a time in 3 s"}
    for delay, after in zip((0, 1, 2, 3), sorted(found.values()), strict=True):
        assert after >= delay


def test_filters(run: Run) -> None:
    lines = run("filters")
    assert sorted(lines[:3]) == ["by tag: order 1, paid", "by tag: order 2, paid", "by tag: order 3, sent"]
    assert sorted(line.split(",")[0] for line in lines[3:]) == [
        "by property: order 1",
        "by property: order 3",
    ]


def test_lag(run: Run) -> None:
    assigned, first, *behind, committed, revoked = run("lag")
    assert (assigned, revoked) == ("4 queues assigned", "4 queues revoked")
    assert (first, behind[-1]) == ("20 messages behind", "0 messages behind")
    assert committed == "committed: 20"


def test_open_telemetry(run: Run) -> None:
    sent, *rest = run("open_telemetry")
    name = "example-open-telemetry"
    assert sent == f"send {name}: parent none, links none"
    assert rest == [
        f"receive {name}: parent none, links send {name}",
        f"process {name}: parent send {name}, links send {name}, receive {name}",
        f"settle {name}: parent process {name}, links send {name}",
    ]


def test_ordered_messages(run: Run) -> None:
    lines = run("ordered_messages")
    for account in ("account-7", "account-8"):
        steps = [line.removeprefix(f"{account} ") for line in lines if line.startswith(account)]
        assert steps == ["opened", "paid in", "closed"]


def test_request_and_reply(run: Run) -> None:
    assert run("request_reply") == ["apple: 0.40", "pear: 0.55", "melon: not sold here"]


def test_serialized_bodies(run: Run) -> None:
    *orders, letter = run("serialized_bodies")
    assert sorted(orders) == ["order 1 costs 9.50", "order 3 costs 20.00"]
    assert letter.startswith(
        'dead letter {"number": "two"}: not read as Order: ValueError: number: Input should'
    )
    assert letter.endswith("; total: Field required")


def test_testing_a_service(run: Run) -> None:
    assert run("testing_a_service") == [
        "paid [4711], although 1 pull was refused",
        "dead letter 'no number' after 3 deliveries",
    ]


def test_tracing(run: Run) -> None:
    kinds = re.findall(r"Pub|SubBefore|SubAfter", "\n".join(run("tracing")))
    assert sorted(kinds) == ["Pub", "SubAfter", "SubBefore"]


def test_transactions(run: Run) -> None:
    assert run("transactions") == [
        "committed: order 4711",
        "rolled back: order 4712 costs 2000, the account has 100",
        "delivered: order 4711 is paid",
    ]


def test_quickstart(run: Run) -> None:
    lines = run("quickstart")
    assert sorted(line.split("'")[1] for line in lines[3:]) == ["hello 0", "hello 1", "hello 2"]


def test_every_example_is_run_by_a_test() -> None:
    here = Path(__file__).parent
    tested = set(re.findall(r'run\("(\w+)"\)', (here / "test_examples.py").read_text()))
    quick_starts = (here / "test_client_examples.py").read_text()
    tested |= {
        f"quickstart_{name}" for name in re.findall(r'(?:_run|_command)\("(\w+)", cluster\)', quick_starts)
    }
    tested |= set(
        re.findall(r'"(quickstart_\w+)\.py"', (here / "test_client_simple_consumer.py").read_text())
    )
    assert {path.stem for path in _EXAMPLES.glob("*.py")} - {"__init__"} - tested == set()
