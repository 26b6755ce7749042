"""Which functions can get bodies, and what their parameters get."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from rmq_client import (
    BytesSerializer,
    ConsumeContext,
    ConsumeResult,
    InvalidArgumentError,
    JsonSerializer,
    MessageExt,
    OrderlyContext,
    PushConsumer,
    PydanticSerializer,
    UnreadableBody,
    UsageError,
    body_listener,
)
from rmq_client.consumer.processing.listener import inspect_listener
from tests.unit.client.consumer.listener_support import QUEUE

if TYPE_CHECKING:
    from datetime import date


class Order(BaseModel):
    number: int


_MESSAGE = MessageExt("T", b'{"number": 7}')
_CONTEXT = ConsumeContext(QUEUE)


def test_the_body_has_the_type_of_the_parameter() -> None:
    got: list[object] = []

    def pay(order: Order) -> ConsumeResult:
        got.append(order)
        return ConsumeResult.LATER

    listener = body_listener(pay, PydanticSerializer())
    assert listener([_MESSAGE], _CONTEXT) is ConsumeResult.LATER
    assert got == [Order(number=7)]


def test_parameters_are_told_apart_by_their_annotations() -> None:
    got: list[tuple[object, ...]] = []

    def pay(context: ConsumeContext, message: MessageExt, order: Order, more: int = 5) -> None:
        got.append((context, message, order, more))

    body_listener(pay, PydanticSerializer())([_MESSAGE], _CONTEXT)
    assert got == [(_CONTEXT, _MESSAGE, Order(number=7), 5)]


def test_without_an_annotation_the_body_is_whatever_it_holds() -> None:
    got: list[object] = []

    def keep(body) -> None:  # type: ignore[no-untyped-def]  # as many applications write it
        got.append(body)

    body_listener(keep, JsonSerializer())([_MESSAGE], _CONTEXT)
    body_listener(keep, BytesSerializer())([_MESSAGE], _CONTEXT)
    assert got == [{"number": 7}, b'{"number": 7}']


async def test_coroutine_functions_methods_partials_and_callable_objects() -> None:
    got: list[object] = []

    class Till:
        async def pay(self, order: Order) -> None:
            got.append(order)

        async def __call__(self, order: Order) -> None:
            got.append(order)

    async def pay_at(shop: str, order: Order) -> None:
        got.append((shop, order))

    for function in (Till().pay, Till(), functools.partial(pay_at, "s")):
        listener = body_listener(function, PydanticSerializer())
        kind = inspect_listener(listener)
        assert (kind.is_coroutine, kind.takes_context) == (True, True)
        await listener([_MESSAGE], _CONTEXT)
    assert got == [Order(number=7), Order(number=7), ("s", Order(number=7))]


def test_unreadable_bodies_raise_before_the_function_is_called() -> None:
    def pay(order: Order) -> None:
        raise AssertionError

    with pytest.raises(UnreadableBody, match="not read as Order: ValueError: number: Field required"):
        body_listener(pay, PydanticSerializer())([MessageExt("T", b"{}")], _CONTEXT)


def test_a_type_of_a_function_can_be_given() -> None:
    class Local(BaseModel):
        number: int

    got: list[object] = []

    def pay(order: Local, message: MessageExt, context: OrderlyContext) -> None:
        got.append((order, message))

    with pytest.raises(InvalidArgumentError, match=r"annotation 'Local'.*at the top of the module"):
        body_listener(pay, PydanticSerializer())
    body_listener(pay, PydanticSerializer(), kind=Local)([_MESSAGE], _CONTEXT)
    assert got == [(Local(number=7), _MESSAGE)]


def _two_bodies(first: Order, second: Order) -> None: ...
def _no_body(message: MessageExt) -> None: ...
def _two_messages(body: Order, message: MessageExt, again: MessageExt) -> None: ...
def _keyword_only(body: Order, *, shop: str) -> None: ...
def _only_for_checkers(body: date) -> None: ...
def _set(body: set[int]) -> None: ...


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (_two_bodies, "must have one parameter for the body"),
        (_no_body, "must have one parameter for the body"),
        (_two_messages, "must have one parameter for the body"),
        (lambda: None, "must have one parameter for the body"),
        (_keyword_only, "keyword-only parameters need defaults"),
        (_only_for_checkers, "annotation 'date'.*unknown here"),
        (_set, "JsonSerializer reads plain JSON"),
        ("pay", "must be a function with a parameter for the body"),
    ],
)
def test_other_functions_are_refused(function: Any, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        body_listener(function, JsonSerializer())


def test_a_call_has_one_message() -> None:
    listener = body_listener(lambda body: None, JsonSerializer())
    with pytest.raises(InvalidArgumentError, match="max_messages=2: must be 1"):
        PushConsumer("h:1", group="g", topics="T", listener=listener, max_messages=2)
    with pytest.raises(UsageError, match="2 messages in one call"):
        listener([_MESSAGE, _MESSAGE], _CONTEXT)
