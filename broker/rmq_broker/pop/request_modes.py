"""How groups consume topics, by administration: `messageRequestMode.json` (MessageRequestModeManager)."""

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
    """Modes by topic and group."""

    def __init__(self, settings: PopSettings) -> None:
        self._settings = settings
        self._modes: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """How a group consumes a topic; where nobody has said so, by default. Retry topics are pulled."""
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
        """Have a group consume a topic in a way."""
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode

    def forget_topics(self, topics: Collection[str]) -> bool:
        """Topics were deleted; whether that changes anything."""
        known = [topic for topic in topics if topic in self._modes]
        for topic in known:
            del self._modes[topic]
        return bool(known)

    def forget_group(self, group: str) -> bool:
        """A group was deleted; whether that changes anything."""
        known = [modes for modes in self._modes.values() if modes.pop(group, None) is not None]
        self._modes = {topic: modes for topic, modes in self._modes.items() if modes}
        return bool(known)

    def encode(self) -> bytes:
        """The content of `messageRequestMode.json`, also for slaves that ask for it."""
        return MessageRequestModeSerializeWrapper(message_request_mode_map=self._modes).encode()

    def decode(self, content: bytes) -> None:
        """Take over what `messageRequestMode.json` holds; raises BodyError."""
        self._modes = MessageRequestModeSerializeWrapper.decode(content).message_request_mode_map
