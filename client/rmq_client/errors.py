"""Errors of the SDK, all of them a ClientError. Their messages say what to do.

ClientError
├── MessageEncodeError     a message that cannot be encoded (of rmq_remoting, as are messages)
│   └── InvalidPropertyError   a property that would not be read back as it was written
├── UsageError             the call cannot work: a bad name, a wrong state, a message that no broker accepts
│   ├── InvalidArgumentError   an argument of the wrong type, or out of its bounds
│   │   └── UnwritableBody     a value that the producer's serializer cannot write
│   ├── NotRunning         the object was not started, has been stopped, or was started in another process
│   └── AlreadyExists      a topic, group or user to create exists already: it was left as it is
├── UnreadableBody         the body of a received message is not what its consumer expects
├── GroupNotFound          no broker has the consumer group
├── RouteError             the route of a topic is unknown
│   ├── TopicNotFound      the name servers do not know the topic
│   └── NoQueue            the topic exists, but no queue of it can be written (or read)
├── TransactionNotBegun    the half message is not as durable as configured: it was rolled back
├── TooMuchUnderWay        this process has too many requests in flight: nothing was sent
├── UnreachableError       no answer: nothing listens there, or the connection ended
│   ├── NameServerUnreachable
│   ├── BrokerUnreachable
│   ├── TlsFailed          the server's certificate is not trusted, or the server does not speak TLS
│   └── TimedOut           no answer in time; whether the server acted on the request is unknown
│       └── NoReply        a request was sent, and no reply came in time
└── BrokerError            a server refused the request; has code, remark, and whether a retry may help
    ├── Busy               the server is overloaded, or limits this client: a later retry may work
    ├── Unavailable        this broker cannot now, another one may: shutting down, a slave, a full disk
    ├── PermissionDenied   the topic or the broker may not be written (or read)
    │   ├── NotAuthenticated   no access key was sent, or a wrong one: see ClientSettings.credentials
    │   └── NotAuthorized      the user of the access key lacks the right
    ├── NotFound           no such group, offset or message on that broker
    │   ├── TopicNotOnBroker   no such topic on that broker, yet
    │   └── ReceiptExpired     the popped message no longer belongs to this consumer: it may be redelivered
    ├── Rejected           the request itself is wrong: a bad message, a bad name, an unknown request
    └── SubscriptionError  the group's subscription on the broker is missing, outdated or wrong
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Final

from rmq_remoting.client_error import ClientError
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import (
    BodyError,
    ConnectError,
    HeaderError,
    RequestError,
    RequestTimeout,
    TlsError,
    TooManyRequests,
)

if TYPE_CHECKING:
    from rmq_remoting.message import MessageExt

__all__ = [
    "AlreadyExists",
    "BrokerError",
    "BrokerUnreachable",
    "Busy",
    "ClientError",
    "GroupNotFound",
    "InvalidArgumentError",
    "NameServerUnreachable",
    "NoQueue",
    "NoReply",
    "NotAuthenticated",
    "NotAuthorized",
    "NotFound",
    "NotRunning",
    "PermissionDenied",
    "ReceiptExpired",
    "Rejected",
    "RouteError",
    "SubscriptionError",
    "TimedOut",
    "TlsFailed",
    "TooMuchUnderWay",
    "TopicNotFound",
    "TopicNotOnBroker",
    "TransactionNotBegun",
    "Unavailable",
    "UnreachableError",
    "UnreadableBody",
    "UnwritableBody",
    "UsageError",
    "broker_error",
    "readable",
    "request_failure",
]


class UsageError(ClientError, ValueError):
    """A call that cannot work, whatever the servers answer."""


class InvalidArgumentError(UsageError):
    """An argument of the wrong type, or out of its bounds. The text has its name, its value and the rule."""


class UnwritableBody(InvalidArgumentError):
    """A value that the producer's serializer cannot write."""


class UnreadableBody(ClientError):
    """The body of `message` is not what its consumer expects; `reason` says why.

    A listener that raises it makes the message a dead letter at once: a retry would read the same body.
    """

    def __init__(self, message: MessageExt, reason: str) -> None:
        self.message = message
        self.reason = reason
        super().__init__(f"body of message {message.msg_id} of topic {message.topic}: {reason}")


class NotRunning(UsageError):
    """The object was not started, has been stopped, or was started in another process, before a fork."""


class AlreadyExists(UsageError):
    """A topic, group or user that was to be created exists already; it was left as it is."""


class GroupNotFound(ClientError):
    """No broker has the consumer group."""


class RouteError(ClientError):
    """The route of a topic is unknown."""


class TopicNotFound(RouteError):
    """The name servers do not know the topic."""


class NoQueue(RouteError):
    """The topic exists, but no queue of it can be used as requested."""


class TooMuchUnderWay(ClientError):
    """This process has too many requests in flight; nothing was sent."""


class TransactionNotBegun(ClientError):
    """A broker stored a half message, but not as durably as configured: it was rolled back."""


class UnreachableError(ClientError):
    """A request got no answer."""


class NameServerUnreachable(UnreachableError):
    """No name server of the list answers."""


class BrokerUnreachable(UnreachableError):
    """A broker cannot be reached, or its connection ended before it answered."""


class TlsFailed(UnreachableError):
    """No TLS with the server: its certificate is not trusted, or it speaks no TLS that this client knows."""


class TimedOut(UnreachableError):
    """No answer came in time; whether the server acted on the request is unknown."""


class NoReply(TimedOut):
    """A request reached a broker, and no reply came in time: it has no consumer, or the consumer needs
    longer.
    """

    # The request is stored, and its consumer may have acted on it.
    is_outcome_unknown = True


class BrokerError(ClientError):
    """A server refused a request. `code` and `remark` are the server's.

    `retryable`: the same request may succeed a little later, or on another broker.
    """

    retryable: ClassVar[bool] = False
    advice: ClassVar[str] = ""

    def __init__(self, code: int, remark: str | None, address: str, about: str = "") -> None:
        self.code = code
        self.remark = remark or ""
        self.address = address
        self.is_outcome_unknown = code in _OUTCOME_UNKNOWN_CODES
        name = ResponseCode(code).name if code in _KNOWN_CODES else "unknown code"
        what = f"{about}: " if about else ""
        said = self.remark or "without a remark"
        advice = f" ({self.advice})" if self.advice else ""
        super().__init__(f"{what}{address} answered {code} ({name}): {said}{advice}")


class Busy(BrokerError):
    """The server is overloaded, or limits this client."""

    retryable = True


class Unavailable(BrokerError):
    """This broker cannot serve the request now; another one may."""

    retryable = True


class PermissionDenied(BrokerError):
    """The topic or the broker does not permit this use. Another broker of the topic may."""

    retryable = True


class NotAuthenticated(PermissionDenied):
    """The server requires a known access key and a signature: see ClientSettings.credentials."""

    advice = "check access key and secret key: the user must exist there, and be enabled"


class NotAuthorized(PermissionDenied):
    """The user of the access key lacks the right. Users of another broker may differ."""

    advice = "grant the right to the user, for example with mqadmin createAcl or updateAcl"


class NotFound(BrokerError):
    """The object of the request does not exist on that broker."""


class TopicNotOnBroker(NotFound):
    """The broker does not have the topic (yet): another one may, and this one soon."""

    retryable = True


class ReceiptExpired(NotFound):
    """A popped message no longer belongs to this consumer: its invisible time is over, or it was
    acknowledged.
    """


class Rejected(BrokerError):
    """The request itself is wrong: no broker accepts it."""


class SubscriptionError(BrokerError):
    """The group's subscription on the broker does not fit the request."""


# Codes that a server may send after it has acted: a failed flush, an internal error, an unreadable answer.
_OUTCOME_UNKNOWN_CODES: Final = frozenset(
    {ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE}
)
_KNOWN_CODES: Final = frozenset(int(code) for code in ResponseCode)

# The retryable errors are those of Apache RocketMQ 5.3.3, DefaultMQProducer.retryResponseCodes.
_CLASSES: Final[dict[int, type[BrokerError]]] = {
    ResponseCode.SYSTEM_ERROR: Unavailable,
    ResponseCode.SYSTEM_BUSY: Busy,
    ResponseCode.FLOW_CONTROL: Busy,
    ResponseCode.POLLING_FULL: Busy,
    ResponseCode.SERVICE_NOT_AVAILABLE: Unavailable,
    ResponseCode.NO_BUYER_ID: Unavailable,
    ResponseCode.NOT_IN_CURRENT_UNIT: Unavailable,
    ResponseCode.GO_AWAY: Unavailable,
    ResponseCode.NO_PERMISSION: PermissionDenied,
    ResponseCode.TOPIC_NOT_EXIST: TopicNotOnBroker,
    ResponseCode.QUERY_NOT_FOUND: NotFound,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: NotFound,
    ResponseCode.CONSUMER_NOT_ONLINE: NotFound,
    ResponseCode.NO_MESSAGE: NotFound,
    ResponseCode.MESSAGE_ILLEGAL: Rejected,
    ResponseCode.INVALID_PARAMETER: Rejected,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Rejected,
    ResponseCode.VERSION_NOT_SUPPORTED: Rejected,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: SubscriptionError,
    ResponseCode.SUBSCRIPTION_NOT_EXIST: SubscriptionError,
    ResponseCode.SUBSCRIPTION_NOT_LATEST: SubscriptionError,
    ResponseCode.FILTER_DATA_NOT_EXIST: SubscriptionError,
    ResponseCode.FILTER_DATA_NOT_LATEST: SubscriptionError,
}


# Access control has no codes of its own. The remarks are those of Apache RocketMQ 5.3.3
# (DefaultAuthenticationHandler, AbstractAuthenticationStrategy, AclAuthorizationHandler and others).
_NOT_AUTHENTICATED: Final = re.compile(
    "check signature failed|username cannot be null|Authentication failed|User:.* (is )?(not found|disabled)"
)
_NOT_AUTHORIZED: Final = re.compile("has no permission to access |^Authorization failed")
# Brokers before 5.3 (ACL 1.0: Apache RocketMQ 4.9, PlainPermissionManager) answer SYSTEM_ERROR with the
# exception and its source position.
_OLD_ACCESS_CONTROL: Final = re.compile(
    r"org\.apache\.rocketmq\.acl\.common\.AclException: "
    "(?:(?P<unknown>No accessKey is configured|No acl config for |Check signature failed )"
    "|No (?:default )?permission for |Need admin permission )"
)


def broker_error(code: int, remark: str | None, address: str, about: str = "") -> BrokerError:
    """Return the error for a response code that refuses a request. `about` names the request."""
    kind = _CLASSES.get(code, BrokerError)
    if kind is PermissionDenied and remark is not None:
        if _NOT_AUTHENTICATED.match(remark):
            kind = NotAuthenticated
        elif _NOT_AUTHORIZED.search(remark):
            kind = NotAuthorized
    elif code == ResponseCode.SYSTEM_ERROR and (found := _OLD_ACCESS_CONTROL.match(remark or "")):
        error = (NotAuthenticated if found["unknown"] else NotAuthorized)(code, remark, address, about)
        error.is_outcome_unknown = False  # access is checked before anything else
        return error
    return kind(code, remark, address, about)


@contextmanager
def readable(address: str, about: str) -> Iterator[None]:
    """Turn an error in decoding an answer into a BrokerError."""
    try:
        yield
    except (HeaderError, BodyError) as error:
        raise BrokerError(ResponseCode.SUCCESS, f"unreadable: {error}", address, about) from error


def request_failure(error: RequestError, about: str = "") -> ClientError:
    """Return the SDK's error for a request that got no answer from a broker."""
    text = f"{about}: {error}" if about else str(error)
    if isinstance(error, TooManyRequests):
        return TooMuchUnderWay(text)
    if isinstance(error, ConnectError) and not isinstance(error, TlsError):
        text += (
            "; is the broker running, and can this machine reach the address that it has registered "
            "(its brokerIP1)?"
        )
    failure: UnreachableError
    if isinstance(error, TlsError):
        failure = TlsFailed(text)
    else:
        failure = TimedOut(text) if isinstance(error, RequestTimeout) else BrokerUnreachable(text)
    failure.is_outcome_unknown = not isinstance(error, ConnectError)
    return failure
