"""A broker that sends are stored in, without a network."""

from __future__ import annotations

from pathlib import Path

from rmq_broker.sending.answering import SendAnswers
from rmq_broker.sending.plan import SendPlan
from rmq_broker.sending.planning import SendPlanner
from rmq_broker.sending.redirection import Redirection
from rmq_broker.sending.routes import Route, SendRoutes
from rmq_broker.sending.storing import SendStorage, Stored
from rmq_broker.sending.target_check import TargetChecker
from rmq_remoting.headers.send import SendMessageRequestHeader, SendTarget
from tests.support.clock import START_MS
from tests.support.local_broker import STORE_HOST, LocalBroker
from tests.unit.broker.delivery.parts import BORN_HOST

PEER = "10.1.2.3:4567"


class SendBroker(LocalBroker):
    """A broker, and the four steps of a send: route, plan, store, answer."""

    def __init__(self, folder: Path, **keys: object) -> None:
        super().__init__(folder, None, **{"mappedFileSizeConsumeQueue": 6000, **keys})
        redirection = Redirection(self.writer, self.retries, self.transactions.preparing)
        self.routes = SendRoutes(
            self.settings,
            TargetChecker(self.settings, self.topics, self.clock),
            self.store,
            self.statistics,
            redirection,
            STORE_HOST,
        )
        self.planner = SendPlanner(self.settings, lambda: "MADE")
        self.storage = SendStorage(self.store, self.statistics, redirection, STORE_HOST)
        self.answers = SendAnswers(self.settings, self.store, STORE_HOST)

    def route(self, target: SendTarget) -> Route:
        """Find the route of a target, which is not cached yet or may be outdated."""
        return self.routes.find(target, PEER, 479)

    def send(
        self, target: SendTarget, body: bytes = b"body", properties: bytes = b"UNIQ_KEY\x01K\x02"
    ) -> tuple[SendPlan, Stored]:
        """Plan and store a send."""
        header, route = SendMessageRequestHeader(target, START_MS, properties), self.route(target)
        plan = self.planner.plan(header, route, body)
        return plan, self.storage.store(plan, header, route, body, BORN_HOST)


def target(
    topic: str = "T",
    queue_id: int = 0,
    *,
    group: str = "PG",
    default_topic: str = "TBW102",
    sys_flag: int = 0,
    reconsume_times: int = 0,
    batch: bool = False,
) -> SendTarget:
    """The target of a send."""
    return SendTarget(
        group,
        topic,
        default_topic,
        4,
        queue_id,
        sys_flag=sys_flag,
        reconsume_times=reconsume_times,
        batch=batch,
    )
