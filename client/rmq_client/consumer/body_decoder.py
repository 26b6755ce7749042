"""The part of a consumer that reads bodies for the application."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from rmq_remoting.message import MessageExt

from ..bodies.encoding import decode_by
from ..bodies.serializers import Serializer

T = TypeVar("T")


class BodyDecoder:
    """Reads bodies by the serializer of the consumer."""

    _serializer: Serializer | None

    @overload
    def decode(self, message: MessageExt, kind: type[T]) -> T: ...
    @overload
    def decode(self, message: MessageExt, kind: Any = ...) -> Any: ...
    def decode(self, message: MessageExt, kind: Any = Any) -> Any:
        """Return the body of a message as a value of type `kind`, read by the consumer's serializer.

        `kind` is a class, or a form such as `list[Order]`. Without it: whatever the body holds. Without a
        serializer the body is bytes. Raises UnreadableBody for a body that cannot be read, and
        InvalidArgumentError for a type that the serializer cannot read.
        """
        return decode_by(self._serializer, message, kind)
