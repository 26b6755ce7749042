"""Locks on queues in virtual time (Apache RocketMQ 5.3.3, RebalanceLockManager)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmq_broker.clients.queue_locks import HOLD_SECONDS, QueueLocks
from rmq_remoting.message_queue import MessageQueue

_QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(4)]


class _Locks(QueueLocks):
    """Locks with a clock that the test advances."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        super().__init__(lambda: self.seconds)


def test_a_queue_has_one_holder() -> None:
    locks = _Locks()
    assert locks.lock("CG", _QUEUES[:2], "c1") == _QUEUES[:2]
    assert locks.lock("CG", _QUEUES, "c2") == _QUEUES[2:]
    assert locks.lock("CG", _QUEUES, "c1") == _QUEUES[:2]
    assert locks.lock("Other", _QUEUES, "c2") == _QUEUES
    assert [locks.holder("CG", queue) for queue in _QUEUES] == ["c1", "c1", "c2", "c2"]
    assert locks.counts() == {"CG": 4, "Other": 4}


def test_renewed_lock_stays() -> None:
    locks = _Locks()
    for _ in range(10):
        assert locks.lock("CG", _QUEUES[:1], "c1") == _QUEUES[:1]
        locks.seconds += HOLD_SECONDS
        assert locks.lock("CG", _QUEUES[:1], "c2") == []


def test_expired_lock_can_be_taken_over() -> None:
    locks = _Locks()
    locks.lock("CG", _QUEUES[:1], "c1")
    locks.seconds += HOLD_SECONDS + 0.001
    assert locks.holder("CG", _QUEUES[0]) is None
    assert locks.lock("CG", _QUEUES[:1], "c2") == _QUEUES[:1]
    assert locks.lock("CG", _QUEUES[:1], "c1") == []


def test_lock_duration_can_be_set() -> None:
    now = 0.0
    locks = QueueLocks(lambda: now, 2.0)
    locks.lock("CG", _QUEUES[:1], "c1")
    now = 2.0
    assert locks.lock("CG", _QUEUES[:1], "c2") == []
    now = 2.1
    assert locks.lock("CG", _QUEUES[:1], "c2") == _QUEUES[:1]


def test_only_the_holder_unlocks() -> None:
    locks = _Locks()
    locks.lock("CG", _QUEUES, "c1")
    locks.unlock("CG", _QUEUES, "c2")
    locks.unlock("Unknown", _QUEUES, "c1")
    assert locks.lock("CG", _QUEUES, "c2") == []
    locks.unlock("CG", _QUEUES[:1], "c1")
    assert locks.lock("CG", _QUEUES, "c2") == _QUEUES[:1]
    locks.unlock("CG", _QUEUES, "c1")
    locks.unlock("CG", _QUEUES, "c2")
    assert locks.counts() == {}


def test_expired_locks_use_no_memory() -> None:
    locks = _Locks()
    locks.lock("CG", _QUEUES, "c1")
    locks.lock("Nobody", [], "c1")
    locks.seconds += 30
    locks.lock("CG", _QUEUES[:1], "c1")
    locks.seconds += 31
    locks.forget_expired()
    assert locks.counts() == {"CG": 1}
    locks.seconds += 60
    locks.forget_expired()
    assert locks.counts() == {}


_steps = st.tuples(
    st.sampled_from(["lock", "unlock", "pass"]),
    st.sampled_from(["c1", "c2", "c3"]),
    st.sets(st.integers(0, 3)),
    st.floats(0, 70),
)


@given(st.lists(_steps, max_size=40))
def test_never_two_holders_within_the_lock_duration(steps: list[tuple[str, str, set[int], float]]) -> None:
    """A granted queue belongs to its client until it unlocks, or sends no renewal for a minute."""
    locks = _Locks()
    granted: dict[MessageQueue, tuple[str, float]] = {}
    for what, client, ids, seconds in steps:
        queues = [_QUEUES[queue_id] for queue_id in sorted(ids)]
        if what == "pass":
            locks.seconds += seconds
            locks.forget_expired()
        elif what == "unlock":
            locks.unlock("CG", queues, client)
            granted = {
                queue: grant
                for queue, grant in granted.items()
                if not (queue in queues and grant[0] == client)
            }
        else:
            for queue in locks.lock("CG", queues, client):
                holder, until = granted.get(queue, (client, 0.0))
                assert holder == client or until < locks.seconds
                granted[queue] = (client, locks.seconds + HOLD_SECONDS)
