"""Publishers of responses: to a request of RocketMQ, or to the topic that a message names."""

from __future__ import annotations

from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream.response.response import PublishCommand

from rmq_client import MessageExt

from .producer import RocketProducer
from .response import RocketPublishCommand


class RequestReplier(FakePublisher):
    """Replies to a request; the broker passes the reply on to the requester."""

    def __init__(self, producer: RocketProducer, request: MessageExt) -> None:
        super().__init__(producer=producer)
        self._request = request

    def patch_command(self, cmd: PublishCommand) -> RocketPublishCommand:
        """Return the command as a reply to the request."""
        command = RocketPublishCommand.from_cmd(super().patch_command(cmd))
        command.request = self._request
        return command


class TopicReplier(FakePublisher):
    """Publishes responses to the topic that the header `reply_to` of the message names."""

    def __init__(self, producer: RocketProducer, topic: str) -> None:
        super().__init__(producer=producer)
        self._topic = topic

    def patch_command(self, cmd: PublishCommand) -> RocketPublishCommand:
        """Return the command with the topic."""
        command = RocketPublishCommand.from_cmd(super().patch_command(cmd))
        command.destination = self._topic
        return command
