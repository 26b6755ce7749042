"""Request modes of the master (Apache RocketMQ 5.3.3, SlaveSynchronize.syncMessageRequestMode)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.bodies.assignment import MessageRequestModeSerializeWrapper
from rmq_remoting.codes import RequestCode

from .part import require_member

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...pop.request_modes import RequestModes
    from .master import Master


class RequestModePart:
    """Takes over whether groups pull or pop."""

    name = "request modes"
    period_seconds = 10.0
    is_versioned = True

    def __init__(self, modes: RequestModes, changed: Callable[[], None]) -> None:
        """`changed` is called after a change, to have the modes written."""
        self._modes = modes
        self._changed = changed

    async def sync(self, master: Master) -> None:
        """Take over the master's modes. Raises RequestError, MetadataError, BodyError."""
        body = await master.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        answer = MessageRequestModeSerializeWrapper.decode(body)
        require_member(answer, "message_request_mode_map")
        if self._modes.follow(answer.message_request_mode_map):
            self._changed()

    def master_changed(self) -> None:
        """Do nothing: no answer is kept."""
