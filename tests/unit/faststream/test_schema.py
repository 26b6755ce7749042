"""The AsyncAPI document of an application."""

from __future__ import annotations

from typing import Any

import pytest
from faststream.security import SASLPlaintext
from faststream.specification import AsyncAPI
from pydantic import BaseModel

from rmq_faststream import RocketBroker, RocketResponse, RocketRouter


class Order(BaseModel):
    number: int


def _document(broker: RocketBroker, version: Any = "3.0.0") -> dict[str, Any]:
    document: dict[str, Any] = AsyncAPI(broker, schema_version=version).to_specification().to_jsonable()
    return document


@pytest.mark.parametrize("version", ["2.6.0", "3.0.0"])
def test_the_document_has_channels_of_subscribers_and_publishers(version: str) -> None:
    broker = RocketBroker("ns1:9876;ns2:9876", protocol_version="5.3.3")

    @broker.subscriber("orders", group="till", description="Orders of all shops.")
    @broker.publisher("invoices", title="Invoices")
    async def on_order(order: Order) -> Order:
        return order

    document = _document(broker, version)
    assert document["channels"].keys() == {"orders:OnOrder", "Invoices"}
    assert document["components"]["schemas"]["Order"]["properties"]["number"] == {
        "title": "Number",
        "type": "integer",
    }
    assert "Orders of all shops." in str(document["channels"]["orders:OnOrder"])
    servers = document["servers"].values()
    assert {server.get("host") or server["url"] for server in servers} == {"ns1:9876", "ns2:9876"}
    assert {(server["protocol"], server["protocolVersion"]) for server in servers} == {("rocketmq", "5.3.3")}


def test_each_topic_of_a_subscriber_is_a_channel() -> None:
    broker = RocketBroker()
    router = RocketRouter("eu-")

    @router.subscriber(["orders", "prices"], group="till", title="News")
    async def on_news(order: Order) -> None: ...

    broker.include_router(router)
    channels = _document(broker)["channels"]
    assert {key: channel["address"] for key, channel in channels.items()} == {
        "News:eu-orders": "eu-orders",
        "News:eu-prices": "eu-prices",
    }


def test_endpoints_can_be_left_out() -> None:
    broker = RocketBroker()

    @broker.subscriber("orders", group="till", include_in_schema=False)
    @broker.publisher("invoices", include_in_schema=False)
    async def on_order(order: Order) -> Order:
        return order

    broker.publisher("prices", schema=Order)
    document = _document(broker)
    assert document["channels"].keys() == {"prices:Publisher"}
    assert "Order" in document["components"]["schemas"]


def test_results_with_options_are_documented_by_the_schema_of_the_publisher() -> None:
    broker = RocketBroker()

    @broker.subscriber("orders", group="till")
    @broker.publisher("invoices", schema=Order)
    @broker.publisher("anything")
    async def on_order(number: int) -> RocketResponse:
        return RocketResponse(Order(number=number))

    components = _document(broker)["components"]
    payload = components["messages"]["invoices:Publisher:Message"]["payload"]
    assert payload == {"$ref": "#/components/schemas/Order"}
    assert "anything:Publisher:Message" in components["messages"]


def test_security_is_documented_without_the_secret() -> None:
    broker = RocketBroker(security=SASLPlaintext(username="shop", password="secret"))
    document = _document(broker)
    assert document["components"]["securitySchemes"] == {"user-password": {"type": "userPassword"}}
    assert "secret" not in str(document)


def test_addresses_come_from_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "ns1:9876, ns2:9876")
    assert RocketBroker(None).specification.url == ["ns1:9876", "ns2:9876"]
    monkeypatch.delenv("NAMESRV_ADDR")
    assert RocketBroker(None).specification.url == ["name-server:9876"]


def test_the_address_of_the_document_can_be_another_one() -> None:
    assert RocketBroker(specification_url="public:9876").specification.url == ["public:9876"]
