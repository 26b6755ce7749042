"""Construction of blocking classes from the asyncio classes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from ..lifetime import Lifetime
from .background import run

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F")
A = TypeVar("A", bound=Lifetime)
B = TypeVar("B")


class BlockingObject(Generic[A]):
    """Wraps an asyncio object, and starts and stops it."""

    _asyncio: A

    def start(self) -> None:
        """Start the object."""
        run(self._asyncio.start())

    def stop(self) -> None:
        """Stop the object."""
        run(self._asyncio.stop())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._asyncio.__aexit__(kind, error, trace))


def constructs(
    kind: Callable[P, B],
) -> Callable[[Callable[[Any], None]], Callable[Concatenate[Any, P], None]]:
    """Turn `__init__` into a constructor with the parameters of the asyncio class, which it creates."""

    def decorate(_: Callable[[Any], None]) -> Callable[Concatenate[Any, P], None]:
        @functools.wraps(kind.__init__)
        def make(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
            self._asyncio = kind(*args, **kwargs)

        return make

    return decorate


def blocking(
    method: Callable[Concatenate[B, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return a method that runs an asyncio method and waits for it."""

    @functools.wraps(method)
    def wait(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(method(self._asyncio, *args, **kwargs))

    return wait


def on_loop(method: Callable[Concatenate[B, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method for one that does not wait itself, run on the loop of the object."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def there() -> T:
            return method(self._asyncio, *args, **kwargs)

        return run(there())

    return call


def on_loop_wrapped(
    face: Callable[[T], F], method: Callable[Concatenate[B, P], T]
) -> Callable[Concatenate[Any, P], F]:
    """Return a method for one that returns an asyncio object, which `face` wraps."""
    call = on_loop(method)

    @functools.wraps(method)
    def make(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> F:
        return face(call(self, *args, **kwargs))

    return make


@contextmanager
def blocking_context(context: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter and leave an asyncio context on the background loop."""
    value = run(_entered(context))
    try:
        yield value
    except BaseException as error:
        if not run(_left(context, error)):
            raise
    else:
        run(_left(context, None))


async def _entered(context: AbstractAsyncContextManager[T]) -> T:
    return await context.__aenter__()


async def _left(context: AbstractAsyncContextManager[Any], error: BaseException | None) -> bool:
    kind = None if error is None else type(error)
    return bool(await context.__aexit__(kind, error, None if error is None else error.__traceback__))
