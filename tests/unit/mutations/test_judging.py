"""The order of tests, and verdicts: a mutation is killed by a test that fails twice."""

from __future__ import annotations

from typing import cast

from tests.mutations.checkout import Checkout
from tests.mutations.judging import KILLED, SURVIVED, UNDECIDED, Verdict, in_runs, judge, within
from tests.mutations.mutations import Mutation
from tests.mutations.reach import TimedTest
from tests.mutations.tables import Stage
from tests.unit.mutations.fake_checkout import FakeCheckout

_MODULE = "broker/rmq_broker/store/queues/dispatcher.py"
_MUTATION = Mutation("store", _MODULE, 1, 0, "compare", "run", "a < b", "a <= b")
_STAGE = Stage("unit", ("tests/unit",), bound_s=60)
_NAMES = [f"tests/unit/broker/store/queues/test_dispatcher.py::test_{number}" for number in range(4)]


def _test(name: str, seconds: float = 1.0, outcome: str = "passed") -> TimedTest:
    return TimedTest(name, seconds, outcome, (_MUTATION.id,))


def _judge(checkout: FakeCheckout, bound_s: float = 60) -> Verdict:
    tests = [*map(_test, _NAMES), _test("tests/unit/test_broken.py::test", outcome="failed")]
    return judge(cast(Checkout, checkout), _MUTATION, _STAGE, tests, bound_s)


def test_near_tests_come_first_then_files_with_short_ones() -> None:
    folder = "tests/unit/broker/store"
    names = [
        f"{folder}/queues/test_dispatcher.py",
        f"{folder}/queues/test_dispatcher_faults.py",
        f"{folder}/queues/test_consume_queue.py",
        f"{folder}/test_golden.py",
        "tests/unit/broker/pop/test_popping.py",
        "tests/unit/client/test_tls.py",
        "tests/integration/test_broker.py",
    ]
    tests = [_test(f"{name}::test", 2 if "golden" in name else 1) for name in reversed(names)]
    tests.append(_test(f"{folder}/test_api.py::test"))
    assert [[test.file for test in run] for run in in_runs(_MODULE, tests)] == [
        names[:3],
        [f"{folder}/test_api.py", *names[3:]],
    ]


def test_the_third_run_has_the_files_beyond_twenty() -> None:
    tests = [_test(f"tests/unit/proxy/test_{number}.py::test") for number in range(30)]
    assert [len(run) for run in in_runs(_MODULE, tests)] == [20, 10]


def test_a_bound_leaves_out_the_last_tests() -> None:
    tests = [_test(name, 2) for name in _NAMES]
    assert within(5, tests) == tests[:2]


def test_a_mutation_that_no_test_notices_survives() -> None:
    checkout = FakeCheckout()
    verdict = _judge(checkout)
    assert (verdict.outcome, verdict.reaching, verdict.ran) == (SURVIVED, 4, 4)
    assert checkout.runs == [_NAMES]


def test_a_mutation_that_not_all_tests_could_judge_is_undecided() -> None:
    verdict = _judge(FakeCheckout(), bound_s=3)
    assert (verdict.outcome, verdict.reaching, verdict.ran) == (UNDECIDED, 4, 3)


def test_a_mutation_is_undecided_if_a_test_is_not_found() -> None:
    checkout = FakeCheckout()
    checkout.unknown = _NAMES[2]
    verdict = _judge(checkout)
    assert (verdict.outcome, verdict.reaching, verdict.ran) == (UNDECIDED, 4, 3)


def test_a_test_that_fails_twice_kills() -> None:
    checkout = FakeCheckout()
    checkout.outcomes = {_NAMES[1]: ["failed", "failed"]}
    verdict = _judge(checkout)
    assert (verdict.outcome, verdict.failure) == (KILLED, f"failed: {_NAMES[1]}")
    assert checkout.runs == [_NAMES, [_NAMES[1]]]


def test_a_test_that_hangs_twice_kills() -> None:
    checkout = FakeCheckout()
    checkout.outcomes = {_NAMES[0]: ["time-out", "time-out"]}
    assert _judge(checkout).failure == f"time-out: {_NAMES[0]}"


def test_a_flaky_test_does_not_kill_and_the_others_run_after_it() -> None:
    checkout = FakeCheckout()
    checkout.outcomes = {_NAMES[1]: ["failed"], _NAMES[3]: ["failed", "failed"]}
    verdict = _judge(checkout)
    assert (verdict.flaky, verdict.failure) == ([_NAMES[1]], f"failed: {_NAMES[3]}")
    assert checkout.runs == [_NAMES, [_NAMES[1]], _NAMES[2:], [_NAMES[3]]]
