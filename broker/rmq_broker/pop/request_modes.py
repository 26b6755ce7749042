"""Request modes: whether a group pulls or pops a topic (`messageRequestMode.json`).

Source: Apache RocketMQ 5.3.3, MessageRequestModeManager.
"""

from __future__ import annotations

from collections.abc import Collection

from rmq_remoting.bodies.assignment import (
    MessageRequestMode,
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)

from ..settings.pop import PopSettings
from ..topics.names import RETRY_PREFIX


class RequestModes:
    """The modes that administrators have set, by topic and group."""

    def __init__(self, settings: PopSettings) -> None:
        self.version = 0  # grows with every change
        self._settings = settings
        self._modes: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """Return a group's mode for a topic: the one set, or else the default. Retry topics are pulled."""
        mode = self._modes.get(topic, {}).get(group)
        if mode is not None:
            return mode
        settings = self._settings
        default = MessageRequestMode(settings.default_message_request_mode.value)
        if default is MessageRequestMode.PULL or topic.startswith(RETRY_PREFIX):
            return SetMessageRequestModeRequestBody(consumer_group=group, topic=topic)
        return SetMessageRequestModeRequestBody(
            consumer_group=group,
            topic=topic,
            mode=default,
            pop_share_queue_num=settings.default_pop_share_queue_num,
        )

    def set(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Set a group's mode for a topic."""
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self.version += 1

    def follow(self, modes: dict[str, dict[str, SetMessageRequestModeRequestBody]]) -> bool:
        """Take over the modes of a master, on its replica; tell whether they differed."""
        is_new = modes != self._modes
        if is_new:
            self._modes = modes
            self.version += 1
        return is_new

    def forget_topics(self, topics: Collection[str]) -> bool:
        """Forget deleted topics; tell whether any had a mode."""
        known = [topic for topic in topics if topic in self._modes]
        for topic in known:
            del self._modes[topic]
            self.version += 1
        return bool(known)

    def forget_group(self, group: str) -> bool:
        """Forget a deleted group; tell whether it had a mode."""
        known = [modes for modes in self._modes.values() if modes.pop(group, None) is not None]
        if known:
            self._modes = {topic: modes for topic, modes in self._modes.items() if modes}
            self.version += 1
        return bool(known)

    def encode(self) -> bytes:
        """Return the content of `messageRequestMode.json`, which slaves request, too."""
        return MessageRequestModeSerializeWrapper(message_request_mode_map=self._modes).encode()

    def decode(self, content: bytes) -> None:
        """Load the content of `messageRequestMode.json`. Raises BodyError."""
        self._modes = MessageRequestModeSerializeWrapper.decode(content).message_request_mode_map
