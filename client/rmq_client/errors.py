"""Errors of the SDK. Whoever catches ClientError catches all of them; the messages say what to do.

ClientError
├── UsageError             a call that cannot work: a bad name, a wrong state, a message that no broker takes
│   └── NotRunning         the object was not started, or has been stopped
├── RouteError             where a topic is cannot be told
│   ├── TopicNotFound      the name servers do not know the topic
│   └── NoQueue            the topic is there, but no queue of it can be written (or read)
├── TransactionNotBegun    a transaction's message is not as safe as it should be: it was rolled back
├── TooMuchUnderWay        this process has too much under way itself: nothing was sent
├── UnreachableError       no answer: nobody there, or the connection ended
│   ├── NameServerUnreachable
│   ├── BrokerUnreachable
│   ├── TlsFailed          the server's certificate is not trusted, or it does not speak TLS
│   └── TimedOut           no answer in time; whether the server acted on the request is unknown
│       └── NoReply        a request was sent, and nobody has replied to it in time
└── BrokerError            a server refused the request; has its code and remark, and whether to try again
    ├── Busy               it has too much to do, or limits us: later it may work
    ├── Unavailable        this broker cannot now, another one may: being stopped, a slave, a full disk
    ├── PermissionDenied   the topic or the broker may not be written (or read)
    │   ├── NotAuthenticated   no access key was sent, or a wrong one: see ClientSettings.credentials
    │   └── NotAuthorized      the user of the access key has no right to do that
    ├── NotFound           no such group, offset or message on that broker
    │   ├── TopicNotOnBroker   nor such a topic, yet
    │   └── ReceiptExpired     a popped message that is not this consumer's any more: it may come again
    ├── Rejected           the request itself is wrong: a bad message, a bad name, an unknown request
    └── SubscriptionError  what the broker knows of the group's subscription is missing, old or wrong
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Final

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


class ClientError(Exception):
    """Root of all errors of this package.

    `is_outcome_unknown`: a server may have done what was asked for all the same: a message that a send failed
    for may have been stored. Where it is false, it was not.
    """

    is_outcome_unknown: bool = False


class UsageError(ClientError, ValueError):
    """A call that cannot work, whatever the servers say."""


class NotRunning(UsageError):
    """The object was not started, or has been stopped."""


class RouteError(ClientError):
    """Where a topic is cannot be told."""


class TopicNotFound(RouteError):
    """The name servers do not know the topic."""


class NoQueue(RouteError):
    """The topic is there, but no queue of it can be used as asked."""


class TooMuchUnderWay(ClientError):
    """This process has too much under way itself; nothing was sent."""


class TransactionNotBegun(ClientError):
    """A broker has stored a transaction's message, but not as safely as it should: it was rolled back."""


class UnreachableError(ClientError):
    """A request got no answer."""


class NameServerUnreachable(UnreachableError):
    """No name server of the list answers."""


class BrokerUnreachable(UnreachableError):
    """A broker cannot be reached, or its connection ended before it answered."""


class TlsFailed(UnreachableError):
    """No TLS with the server: its certificate is not trusted, or it does not speak TLS as this side does."""


class TimedOut(UnreachableError):
    """No answer came in time; whether the server acted on the request is unknown."""


class NoReply(TimedOut):
    """A request reached a broker, and no reply came in time: nobody consumes it, or it takes longer."""

    # The request is stored, and whoever consumes it may have acted on it.
    is_outcome_unknown = True


class BrokerError(ClientError):
    """A server refused a request. `code` and `remark` are the server's own words.

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
    """The server has too much to do, or limits this client."""

    retryable = True


class Unavailable(BrokerError):
    """This broker cannot serve the request now; another one may."""

    retryable = True


class PermissionDenied(BrokerError):
    """The topic or the broker may not be used like this. Another broker of the topic may allow it."""

    retryable = True


class NotAuthenticated(PermissionDenied):
    """The server wants an access key that it knows, and a signature: ClientSettings.credentials make it."""

    advice = "check access key and secret key: the user has to be known there, and enabled"


class NotAuthorized(PermissionDenied):
    """The user of the access key has no right to do that. Another broker's users may differ."""

    advice = "have the right granted to the user, as by mqadmin createAcl or updateAcl"


class NotFound(BrokerError):
    """What the request is about does not exist on that broker."""


class TopicNotOnBroker(NotFound):
    """The broker does not have the topic (yet): another one may, and this one soon."""

    retryable = True


class ReceiptExpired(NotFound):
    """A popped message is not this consumer's any more: its invisible time has passed, or it is settled."""


class Rejected(BrokerError):
    """The request itself is wrong: it will not work anywhere."""


class SubscriptionError(BrokerError):
    """The broker's idea of the group's subscription does not fit the request."""


# What may have happened before the server came to answer so: a failed flush, an error of its own, an answer
# that cannot be read.
_OUTCOME_UNKNOWN_CODES: Final = frozenset(
    {ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE}
)
_KNOWN_CODES: Final = frozenset(int(code) for code in ResponseCode)

# What is worth another attempt follows Apache RocketMQ 5.3.3, DefaultMQProducer.retryResponseCodes.
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


# Access control has no codes of its own. The remarks are those of Apache RocketMQ 5.3.3 (classes
# DefaultAuthenticationHandler, AbstractAuthenticationStrategy, AclAuthorizationHandler and the like).
_NOT_AUTHENTICATED: Final = re.compile(
    "check signature failed|username cannot be null|Authentication failed|User:.* (is )?(not found|disabled)"
)
_NOT_AUTHORIZED: Final = re.compile("has no permission to access |^Authorization failed")
# Brokers before 5.3 (ACL 1.0: Apache RocketMQ 4.9, PlainPermissionManager) answer SYSTEM_ERROR with the
# exception and its place.
_OLD_ACCESS_CONTROL: Final = re.compile(
    r"org\.apache\.rocketmq\.acl\.common\.AclException: "
    "(?:(?P<unknown>No accessKey is configured|No acl config for |Check signature failed )"
    "|No (?:default )?permission for |Need admin permission )"
)


def broker_error(code: int, remark: str | None, address: str, about: str = "") -> BrokerError:
    """The error for a response code that says 'no'. `about` names what was asked for."""
    kind = _CLASSES.get(code, BrokerError)
    if kind is PermissionDenied and remark is not None:
        if _NOT_AUTHENTICATED.match(remark):
            kind = NotAuthenticated
        elif _NOT_AUTHORIZED.search(remark):
            kind = NotAuthorized
    elif code == ResponseCode.SYSTEM_ERROR and (found := _OLD_ACCESS_CONTROL.match(remark or "")):
        error = (NotAuthenticated if found["unknown"] else NotAuthorized)(code, remark, address, about)
        error.is_outcome_unknown = False  # access is checked before anything is done
        return error
    return kind(code, remark, address, about)


@contextmanager
def readable(address: str, about: str) -> Iterator[None]:
    """Turns what goes wrong in reading an answer into a BrokerError."""
    try:
        yield
    except (HeaderError, BodyError) as error:
        raise BrokerError(ResponseCode.SUCCESS, f"unreadable: {error}", address, about) from error


def request_failure(error: RequestError, about: str = "") -> ClientError:
    """The SDK's error for a request that got no answer from a broker."""
    text = f"{about}: {error}" if about else str(error)
    if isinstance(error, TooManyRequests):
        return TooMuchUnderWay(text)
    failure: UnreachableError
    if isinstance(error, TlsError):
        failure = TlsFailed(text)
    else:
        failure = TimedOut(text) if isinstance(error, RequestTimeout) else BrokerUnreachable(text)
    failure.is_outcome_unknown = not isinstance(error, ConnectError)
    return failure
