"""Look up a topic for a request, or refuse the request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError

if TYPE_CHECKING:
    from rmq_remoting.bodies.topic import TopicConfig

    from .table import TopicTable

# Advice to a client whose topic is unknown.
CREATE_TOPIC: Final = "create it"


def existing_topic(topics: TopicTable, name: str, advice: str | None = None) -> TopicConfig:
    """Return the topic's configuration.

    Raises CommandError (TOPIC_NOT_EXIST) for an unknown topic; `advice` tells the client what to do.
    """
    config = topics.get(name)
    if config is None:
        raise no_such_topic(name, advice)
    return config


def no_such_topic(name: str, advice: str | None = None) -> CommandError:
    """Return the refusal of a request for an unknown topic; `advice` tells the client what to do."""
    problem = f"topic {name} does not exist on this broker"
    return CommandError(ResponseCode.TOPIC_NOT_EXIST, problem if advice is None else f"{problem}: {advice}")
