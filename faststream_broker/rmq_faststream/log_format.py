"""The broker's logger: lines with topic, group and message id."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger

if TYPE_CHECKING:
    from faststream._internal.basic_types import LoggerProto
    from faststream._internal.context import ContextRepo

_ID_LENGTH: Final = 10


class RocketLoggerStorage(DefaultLoggerStorage):
    """Makes the columns as wide as the longest topic and group of the subscribers."""

    def __init__(self) -> None:
        super().__init__()
        self._topic_width = len("topic")
        self._group_width = len("group")

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Widen the columns for a subscriber."""
        self._topic_width = max(self._topic_width, len(params.get("topic", "")))
        self._group_width = max(self._group_width, len(params.get("group", "")))

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        """Return the logger, created at the first call."""
        logger = self._get_logger_ref()
        if logger is None:
            logger = get_broker_logger(
                name="rocketmq",
                default_context={"topic": "", "group": ""},
                message_id_ln=_ID_LENGTH,
                fmt=(
                    "%(asctime)s %(levelname)-8s - "
                    f"%(topic)-{self._topic_width}s | %(group)-{self._group_width}s | "
                    f"%(message_id)-{_ID_LENGTH}s - %(message)s"
                ),
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(logger)
        return logger


make_rocket_logger_state = partial(make_logger_state, default_storage_cls=RocketLoggerStorage)
