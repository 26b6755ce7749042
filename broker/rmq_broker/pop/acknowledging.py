"""Acknowledgements of popped messages, and changes of their invisible time.

Source: Apache RocketMQ 5.3.3, AckMessageProcessor and ChangeInvisibleTimeProcessor. Apache's broker takes any
receipt. This broker knows the messages in flight, and refuses a receipt that is forged, expired, or another
group's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.pop import OrderInfo
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.pop_receipt import Receipt

from ..offsets.table import NO_OFFSET, ConsumerOffsetTable
from ..store.api import MessageRejected, StoreUnavailable
from .answer_size import MAX_MESSAGES
from .check_point import CheckPoint, CheckPointKey, QueueKey
from .journal import OrderProgress
from .orders import OrderAckProblem

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..statistics.broker_statistics import BrokerStatistics
    from ..store.api import MessageStore
    from .closed_pops import ClosedPops
    from .state import PopState

# Takes half of the time of `CheckPointKey(...)` or less, which calls a Python function first.
_new_tuple: Final = tuple.__new__
_ORDER_CODES: Final = {
    OrderAckProblem.NOT_POPPED: ResponseCode.MESSAGE_ILLEGAL,
    OrderAckProblem.POPPED_AGAIN: ResponseCode.NO_MESSAGE,
}


# The queue, the receipt, and the offset of the message that is acknowledged by it.
SingleAck = tuple[QueueKey, Receipt, int]


@dataclass(frozen=True, slots=True)
class NewReceipt:
    """Parts of the receipt that is valid from now on."""

    pop_time: int
    invisible_time_ms: int
    revive_queue_id: int


class Acknowledging:
    """Applies receipts. Each change is in the journal when its method returns."""

    def __init__(
        self,
        state: PopState,
        offsets: ConsumerOffsetTable,
        store: MessageStore,
        statistics: BrokerStatistics,
        wake: Callable[[QueueKey], None],
        now_ms: ClockMs,
        closed: ClosedPops,
    ) -> None:
        """`wake` is called with each queue that can be popped in order again.

        `closed` keeps the acknowledgements of an acting replica.
        """
        self._closed = closed
        self._journal = state.journal
        self._in_flight = state.in_flight
        self._orders = state.orders
        self._offsets = offsets
        self._positions = state.positions
        self._store = store
        self._statistics = statistics
        self._wake = wake
        self._now_ms = now_ms
        self._started_at_ms = now_ms()

    def ack(self, queue: QueueKey, receipt: Receipt, offsets: Collection[int]) -> None:
        """Acknowledge messages; idempotent until their invisible time ends. Raises CommandError."""
        if receipt.is_order:
            for offset in offsets:
                self._ack_in_order(queue, receipt, offset)
            return
        point = self._point(queue, receipt)
        for offset in offsets:
            _check_member(point, offset)
        self._acknowledge(point, [offset for offset in offsets if point.is_open(offset)])

    def ack_all(self, acks: Sequence[SingleAck]) -> list[CommandError | None]:
        """Acknowledge messages by a receipt each; return for each the refusal, or None.

        Messages of one check point become one entry of the journal.
        """
        refusals: list[CommandError | None] = [None] * len(acks)
        joint: dict[CheckPointKey, _JointAck] = {}
        for place, (queue, receipt, offset) in enumerate(acks):
            try:
                if receipt.is_order:
                    self._ack_in_order(queue, receipt, offset)
                    continue
                point = self._point(queue, receipt)
                _check_member(point, offset)
            except CommandError as refusal:
                refusals[place] = refusal
                continue
            if not point.is_open(offset):
                continue
            known = joint.get(point.key)
            if known is None:
                known = joint[point.key] = _JointAck(point)
            known.places.append(place)
            if offset not in known.offsets:  # two of the requests may acknowledge the same message
                known.offsets.append(offset)
        for each in joint.values():
            try:
                self._acknowledge(each.point, sorted(each.offsets))
            except CommandError as refusal:
                for place in each.places:
                    refusals[place] = refusal
        return refusals

    def offsets_of(self, queue: QueueKey, receipt: Receipt, bits: int) -> list[int]:
        """Return the offsets of set bits, counted from the receipt's start offset. Raises CommandError.

        Bits of messages that were not popped are ignored, as by Apache's broker. If a crash has lost an
        ordered pop, all bits count, and `ack` decides.
        """
        if receipt.is_order:
            info = self._orders.get(queue)
            if info is None or info.pop_time != receipt.pop_time:
                return [receipt.start_offset + bit for bit in _lowest_bits(bits)]
            known: Collection[int] = info.queue_offsets()
        else:
            known = self._point(queue, receipt).offsets
        start = receipt.start_offset
        return [offset for offset in known if offset >= start and bits >> (offset - start) & 1]

    def change_invisible_time(
        self, queue: QueueKey, receipt: Receipt, offset: int, invisible_time_ms: int
    ) -> NewReceipt:
        """Let a message become visible `invisible_time_ms` from now. Raises CommandError."""
        if receipt.is_order:
            return self._change_in_order(queue, receipt, offset, invisible_time_ms)
        point = self._point(queue, receipt)
        _check_member(point, offset)
        if not point.is_open(offset):
            raise CommandError(
                ResponseCode.NO_MESSAGE,
                f"message {offset} of {_text(queue)} is acknowledged, or has a newer receipt",
            )
        key = point.key._replace(start_offset=offset, pop_time=self._now_ms())
        while key in self._in_flight:  # within the same millisecond
            key = key._replace(pop_time=key.pop_time + 1)
        successor = CheckPoint(key, invisible_time_ms, (offset,), point.revive_queue_id)
        try:
            self._journal.check_point(successor)
            self._journal.ack(point, [offset])
        except (StoreUnavailable, MessageRejected) as error:
            raise _not_now(error) from error
        self._in_flight.add(successor)
        self._statistics.check_points.add(queue.group, queue.topic)
        self._note_acknowledged(point, [offset])
        return NewReceipt(key.pop_time, invisible_time_ms, point.revive_queue_id)

    # --- unordered pops ---

    def _point(self, queue: QueueKey, receipt: Receipt) -> CheckPoint:
        """Return the check point of a receipt. Raises CommandError."""
        topic, group, queue_id = queue
        key = _new_tuple(
            CheckPointKey,
            (topic, group, queue_id, receipt.start_offset, receipt.pop_time, receipt.broker_name),
        )
        point = self._in_flight.get(key)
        if point is not None:
            return point
        late_ms = self._now_ms() - receipt.revive_time
        if late_ms >= 0:
            remark = (
                f"the receipt expired {late_ms} ms ago: the message is redelivered; "
                "use a longer invisible time"
            )
        else:
            remark = (
                f"group {queue.group} has popped nothing from queue {queue.queue_id} of {queue.topic} with "
                "this receipt, or all of it is acknowledged or redelivered"
            )
        raise CommandError(ResponseCode.NO_MESSAGE, remark)

    def _acknowledge(self, point: CheckPoint, offsets: list[int]) -> None:
        if not offsets:
            return
        try:
            self._journal.ack(point, offsets)
        except (StoreUnavailable, MessageRejected) as error:
            raise _not_now(error) from error
        if self._journal.is_volatile:
            self._closed.note(point, offsets)
        self._note_acknowledged(point, offsets)

    def _note_acknowledged(self, point: CheckPoint, offsets: list[int]) -> None:
        for offset in offsets:
            self._in_flight.ack(point, offset)
        self._statistics.acknowledgements.add(point.key.group, point.key.topic, len(offsets))

    # --- ordered pops ---

    def _ack_in_order(self, queue: QueueKey, receipt: Receipt, offset: int) -> None:
        committed = self._offsets.query(queue.group, queue.topic, queue.queue_id)
        if 0 <= offset < committed:
            return
        info = self._orders.get(queue)
        if info is None and not self._may_be_forgotten(queue, receipt, offset):
            raise CommandError(
                ResponseCode.NO_MESSAGE,
                f"nothing of {_text(queue)} is known to be popped in order: message {max(committed, 0)} is "
                "next",
            )
        next_offset = self._orders.ack(queue, offset, receipt.pop_time)
        if isinstance(next_offset, OrderAckProblem):
            raise self._order_error(queue, offset, next_offset)
        if not self._offsets.has_reset(queue.group, queue.topic, queue.queue_id):
            if info is None:
                info = OrderInfo(pop_time=receipt.pop_time, offset_list=[offset], commit_offset_bit=1)
            self._advance_in_order(queue, OrderProgress(*queue, next_offset, info), offset, receipt)
        self._statistics.acknowledgements.add(queue.group, queue.topic)
        if not self._orders.is_blocked(queue, None, receipt.invisible_time_ms):
            self._wake(queue)

    def _advance_in_order(self, queue: QueueKey, moved: OrderProgress, offset: int, receipt: Receipt) -> None:
        try:
            self._journal.order_progress(moved, offset, receipt.broker_name)
        except (StoreUnavailable, MessageRejected) as error:
            raise _not_now(error) from error
        self._positions.note_journaled(queue)
        self._offsets.commit(queue.group, queue.topic, queue.queue_id, moved.next_offset)

    def _may_be_forgotten(self, queue: QueueKey, receipt: Receipt, offset: int) -> bool:
        """Tell whether a crash may have lost the pop of the group's next message."""
        committed = self._offsets.query(queue.group, queue.topic, queue.queue_id)
        is_next = offset == max(committed, 0) and offset < self._store.max_offset(queue.topic, queue.queue_id)
        return is_next and receipt.pop_time <= self._started_at_ms

    def _change_in_order(
        self, queue: QueueKey, receipt: Receipt, offset: int, invisible_time_ms: int
    ) -> NewReceipt:
        committed = self._offsets.query(queue.group, queue.topic, queue.queue_id)
        if committed != NO_OFFSET and offset < committed:
            raise CommandError(
                ResponseCode.NO_MESSAGE, f"message {offset} of {_text(queue)} is acknowledged already"
            )
        visible_at_ms = self._now_ms() + invisible_time_ms
        problem = self._orders.change_visible_time(queue, offset, receipt.pop_time, visible_at_ms)
        if problem is not None:
            raise self._order_error(queue, offset, problem)
        if not self._orders.is_blocked(queue, None, receipt.invisible_time_ms):
            self._wake(queue)
        # The pop time lies in the future if the clock was set back since; receipts hold no negative times.
        since_pop_ms = max(invisible_time_ms, visible_at_ms - receipt.pop_time)
        return NewReceipt(receipt.pop_time, since_pop_ms, receipt.revive_queue_id)

    @staticmethod
    def _order_error(queue: QueueKey, offset: int, problem: OrderAckProblem) -> CommandError:
        return CommandError(_ORDER_CODES[problem], f"message {offset} of {_text(queue)}: {problem.value}")


class _JointAck:
    """Acknowledgements with the same check point, and their places among all of them."""

    __slots__ = ("offsets", "places", "point")

    def __init__(self, point: CheckPoint) -> None:
        self.point = point
        self.offsets: list[int] = []
        self.places: list[int] = []


def _check_member(point: CheckPoint, offset: int) -> None:
    if offset not in point.offsets:
        raise CommandError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"message {offset} is none of those that were popped with this receipt: "
            f"{', '.join(map(str, point.offsets))}",
        )


def _lowest_bits(bits: int) -> list[int]:
    """The numbers of the bits that are set, of as many as a pop can have."""
    numbers: list[int] = []
    while bits and len(numbers) < MAX_MESSAGES:
        numbers.append((bits & -bits).bit_length() - 1)
        bits &= bits - 1
    return numbers


def _text(queue: QueueKey) -> str:
    return f"queue {queue.queue_id} of {queue.topic} (group {queue.group})"


def _not_now(error: Exception) -> CommandError:
    remark = f"the acknowledgement cannot be stored now: {error}. Try again"
    return CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
