"""Consumers with hooks, and the calls of hooks for receptions and settlements."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ..checks import check_instance
from ..errors import UsageError
from ..lifetime import Lifetime
from ..namespaces import Namespace
from .consume import ConsumeHook, Reception, Settlement, SettlementKind

log = logging.getLogger(__name__)

T = TypeVar("T")


class HookedConsumer(Lifetime):
    """A consumer with hooks, which can be added until it is started."""

    group: str
    """The group's name, without the namespace."""
    broadcasting: bool = False
    """Whether every consumer of the group gets every message."""
    _namespace: Namespace
    _hooks: Sequence[ConsumeHook]

    @property
    def namespace(self) -> str:
        """The namespace of the topics and the group, empty for none."""
        return self._namespace.name

    @property
    def hooks(self) -> tuple[ConsumeHook, ...]:
        """The hooks, in the order in which they are called."""
        return tuple(self._hooks)

    def add_hook(self, hook: ConsumeHook) -> None:
        """Add a hook to those of `hooks`, before the start. Raises UsageError, InvalidArgumentError."""
        check_instance("hook", hook, ConsumeHook, "derive hooks from ConsumeHook")
        if self._instance is not None:
            raise UsageError(f"consumer {self.group} has been started already: add hooks before its start")
        self._hooks = [*self._hooks, hook]


class ConsumptionHooks:
    """Calls `received` and `settled` of the hooks of one consumer.

    Hooks get topics and queues without the namespace.
    """

    def __init__(self, group: str, namespace: Namespace, hooks: Sequence[ConsumeHook]) -> None:
        """`group` is the name without the namespace."""
        self._group = group
        self._namespace = namespace
        self._receiving = [hook for hook in hooks if type(hook).received is not ConsumeHook.received]
        self._settling = [hook for hook in hooks if type(hook).settled is not ConsumeHook.settled]
        # The offsets of automatic commits. Commits repeat an offset until there is another one.
        self._committed: dict[MessageQueue, int] = {}

    @classmethod
    def of(cls, group: str, namespace: Namespace, hooks: Sequence[ConsumeHook]) -> ConsumptionHooks | None:
        """Return None if no hook has one of the two methods: consumers then spend nothing on them."""
        made = cls(group, namespace, hooks)
        return made if made._receiving or made._settling else None

    # --- receptions ---

    def received(
        self, messages: Sequence[MessageExt], elapsed_seconds: float, *, prefetched: bool = False
    ) -> None:
        """Tell the hooks of messages; nothing if there are none."""
        if not messages or not self._receiving:
            return
        topic: str | None = messages[0].topic
        if any(message.topic != topic for message in messages):
            topic = None
        self._tell_received(Reception(self._group, topic, messages, elapsed_seconds, prefetched=prefetched))

    def not_received(
        self,
        topics: Sequence[str],
        error: BaseException,
        elapsed_seconds: float,
        *,
        prefetched: bool = False,
    ) -> None:
        """Tell the hooks of a failure to receive from these topics, which have their full names."""
        topic = self._namespace.unwrap(topics[0]) if len(topics) == 1 else None
        self._tell_received(Reception(self._group, topic, (), elapsed_seconds, error, prefetched))

    @contextmanager
    def receiving(self, topics: Callable[[], Sequence[str]]) -> Iterator[list[MessageExt]]:
        """Time a reception. The caller puts the messages into the list; its error is told, too."""
        received: list[MessageExt] = []
        began = time.perf_counter()
        try:
            yield received
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.not_received(topics(), error, time.perf_counter() - began)
            raise
        self.received(received, time.perf_counter() - began)

    # --- settlements ---

    @contextmanager
    def settling(
        self,
        kind: SettlementKind,
        messages: Sequence[MessageExt],
        *,
        delay_seconds: float | None = None,
        automatic: bool = False,
    ) -> Iterator[None]:
        """Time a settlement, and tell the hooks of it and of its error."""
        began = time.perf_counter()
        failure: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failure = error
            raise
        finally:
            self.settled(
                kind,
                messages,
                time.perf_counter() - began,
                failure,
                delay_seconds=delay_seconds,
                automatic=automatic,
            )

    def settled(
        self,
        kind: SettlementKind,
        messages: Sequence[MessageExt],
        elapsed_seconds: float,
        error: BaseException | None = None,
        *,
        delay_seconds: float | None = None,
        automatic: bool = False,
    ) -> None:
        """Tell the hooks of a settlement of messages of one topic."""
        self._tell_settled(
            Settlement(
                self._group,
                kind,
                messages[0].topic,
                messages,
                delay_seconds=delay_seconds,
                elapsed_seconds=elapsed_seconds,
                error=error,
                automatic=automatic,
            )
        )

    def committed(
        self,
        offsets: Mapping[MessageQueue, int],
        elapsed_seconds: float,
        error: BaseException | None = None,
        *,
        broker_address: str = "",
        automatic: bool = False,
    ) -> None:
        """Tell the hooks of a commit, once for each topic. Automatic commits without news are left out."""
        by_topic: defaultdict[str, dict[MessageQueue, int]] = defaultdict(dict)
        for queue, offset in offsets.items():
            if automatic and error is None:
                if self._committed.get(queue) == offset:
                    continue
                self._committed[queue] = offset
            own = self._namespace.unwrap_queue(queue)
            by_topic[own.topic][own] = offset
        for topic, committed in by_topic.items():
            self._tell_settled(
                Settlement(
                    self._group,
                    SettlementKind.COMMIT,
                    topic,
                    offsets=committed,
                    elapsed_seconds=elapsed_seconds,
                    error=error,
                    automatic=automatic,
                    broker_address=broker_address,
                )
            )

    # --- hooks ---

    def _tell_received(self, reception: Reception) -> None:
        for hook in self._receiving:
            _run(hook.received, reception)

    def _tell_settled(self, settlement: Settlement) -> None:
        for hook in self._settling:
            _run(hook.settled, settlement)


def _run(method: Callable[[T], None], told: T) -> None:
    try:
        method(told)
    except Exception:
        log.exception("consume hook failed hook=%s", getattr(method, "__qualname__", method))
