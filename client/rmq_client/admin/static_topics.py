"""Static topics: create, grow, move, and show (Apache RocketMQ 5.3.3, MQAdminUtils)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from rmq_remoting.bodies.static_topic import TopicConfigAndQueueMapping
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.headers.topic import CreateTopicRequestHeader, GetTopicConfigRequestHeader
from rmq_remoting.message_queue import MessageQueue

from ..checks import Seconds, check_seconds
from ..errors import ClientError, NotFound, TopicNotFound, UsageError
from ..names import AUTO_CREATE_TOPIC, check_topic
from .arguments import checked
from .static_plans import (
    Configs,
    MovePlan,
    add_other_brokers,
    begin_after,
    describe,
    mapping_of,
    needs_repair,
    plan_moves,
    plan_queues,
    plan_repair,
)
from .static_results import QueueMove, StaticTopic
from .topics import TopicAdmin

# Logical offsets of a moved queue begin at a multiple of this number, as with Apache's tool.
_BLOCK: Final = 10_000
_POLL_SECONDS: Final = 0.1


class StaticTopicAdmin(TopicAdmin):
    """Administration of static topics.

    Their brokers have to run during a change: one that fails halfway leaves them with different mappings,
    until `repair_static_topic` finishes it.
    """

    @checked
    async def static_topic(self, topic: str) -> StaticTopic:
        """Return the logical queues of a static topic, and the brokers that have their parts.

        Raises TopicNotFound, UsageError for a topic that is not static, and other ClientErrors.
        """
        full = self._namespace.wrap(topic)
        found = describe(full, await self._known_configs(full))
        return StaticTopic(self._namespace.unwrap(found.topic), found.epoch, found.queues)

    @checked
    async def create_static_topic(
        self, topic: str, queues: int, broker_names: Sequence[str], *, timeout_seconds: Seconds = 10.0
    ) -> StaticTopic:
        """Create a static topic with logical queues on these brokers, or give one more queues.

        `queues` is the number in all. It can only grow, and `broker_names` then includes the brokers that
        lead queues now. Waits until the name servers know the topic. Raises ClientError.
        """
        full = self._namespace.wrap(topic)
        check_topic(full)
        masters = await self._chosen(broker_names)
        known = await self._configs(full)
        configs, _ = plan_queues(full, queues, list(masters), known, _now_ms())
        await self._set_all(full, configs, configs, await self._with_neighbours(full, configs))
        await self._wait_for_brokers(full, set(masters), check_seconds("timeout_seconds", timeout_seconds))
        return await self.static_topic(topic)

    @checked
    async def move_static_topic(
        self, topic: str, broker_names: Sequence[str], *, dry_run: bool = False
    ) -> list[QueueMove]:
        """Move queues of a static topic so that these brokers lead all of them; return the moves.

        Messages stay where they are, and consumers read them first. The logical offsets of a moved queue go
        on at a higher multiple of 10,000. With `dry_run` nothing changes. Raises ClientError.
        """
        full = self._namespace.wrap(topic)
        masters = await self._chosen(broker_names)
        plan = plan_moves(full, list(masters), await self._known_configs(full), _now_ms())
        if dry_run or not plan.moves:
            return plan.moves
        return await self._carry_out(full, plan)

    @checked
    async def repair_static_topic(self, topic: str, *, dry_run: bool = False) -> list[QueueMove]:
        """Finish changes of a static topic that were interrupted; return the moves that had to be finished.

        All brokers have to run: a queue whose brokers are missing would be taken for one that nobody leads.
        Nothing changes where nothing was interrupted, and with `dry_run`. Raises ClientError.
        """
        full = self._namespace.wrap(topic)
        known = await self._known_configs(full)
        if not needs_repair(full, known):
            return []
        plan = plan_repair(full, known, _now_ms())
        return plan.moves if dry_run else await self._carry_out(full, plan)

    # --- steps ---

    async def _carry_out(self, full: str, plan: MovePlan) -> list[QueueMove]:
        addresses = await self._with_neighbours(full, plan.configs)
        # The new leaders accept messages before the old ones refuse them. They learn where their logical
        # offsets begin when the old ones have stopped.
        await self._set_all(full, plan.configs, plan.targets, addresses)
        await self._set_all(full, plan.configs, plan.sources, addresses)
        moves = await self._locate(full, plan, addresses)
        await self._set_all(full, plan.configs, plan.targets, addresses)
        others = set(plan.configs) - set(plan.targets) - set(plan.sources)
        await self._set_all(full, plan.configs, sorted(others), addresses)
        return moves

    async def _locate(self, topic: str, plan: MovePlan, addresses: dict[str, str]) -> list[QueueMove]:
        """Set the logical offsets at which the new leaders begin: behind the ends of the old ones."""
        stats = await self._of_each(
            {broker: addresses[broker] for broker in plan.sources},
            lambda address: self._api.topic_stats(address, topic),
        )
        located: list[QueueMove] = []
        for move in plan.moves:
            *_, old, new = mapping_of(plan.configs[move.source]).hosted_queues[move.queue_id]
            queue = MessageQueue(topic, move.source, old.queue_id)
            reach = stats[move.source].get(queue)
            if reach is None or reach.max_offset < old.start_offset:
                raise ClientError(
                    f"broker {move.source} does not tell where {queue} ends: the move of logical queue "
                    f"{move.queue_id} of {topic} is not finished. Call repair_static_topic when the broker "
                    "answers"
                )
            end = max(0, old.logic_offset) + reach.max_offset - old.start_offset
            new.logic_offset = begin_after(end, _BLOCK)
            for broker in (move.source, move.target):
                chain = mapping_of(plan.configs[broker]).hosted_queues[move.queue_id]
                chain[-1] = new
            located.append(QueueMove(move.queue_id, move.source, move.target, new.logic_offset))
        return located

    async def _set_all(
        self, topic: str, configs: Configs, brokers: Iterable[str], addresses: dict[str, str]
    ) -> None:
        """513: set the mapping on each broker, one after the other."""
        for broker in brokers:
            config = configs[broker]
            header = CreateTopicRequestHeader(
                topic=topic,
                default_topic=AUTO_CREATE_TOPIC,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
                order=config.order,
                topic_filter_type=config.topic_filter_type.value,
                topic_sys_flag=config.topic_sys_flag,
                force=False,
            )
            await self._api.call(
                addresses[broker],
                RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
                header,
                mapping_of(config).encode(),
                about=f"mapping of static topic {topic} on broker {broker}",
            )

    # --- what there is ---

    async def _chosen(self, broker_names: Sequence[str]) -> dict[str, str]:
        """Return the addresses of these brokers' masters. Raises UsageError if one has none."""
        masters = await self._masters()
        missing = sorted(set(broker_names) - set(masters))
        if missing:
            raise UsageError(
                f"broker_names: {', '.join(missing)} has no master; masters: {', '.join(sorted(masters))}"
            )
        return {name: masters[name] for name in broker_names}

    async def _configs(self, topic: str) -> Configs:
        """351: return the topic's configuration with its mapping, from all masters that have it."""
        header = GetTopicConfigRequestHeader(topic=topic, logical=True)

        async def ask(address: str) -> TopicConfigAndQueueMapping | None:
            code, about = RequestCode.GET_TOPIC_CONFIG, f"mapping of topic {topic}"
            try:
                return await self._body(address, code, header, about, TopicConfigAndQueueMapping.decode)
            except NotFound as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    return None
                raise

        found = await self._of_each(await self._masters(), ask)
        return {broker: config for broker, config in found.items() if config is not None}

    async def _known_configs(self, topic: str) -> Configs:
        found = await self._configs(topic)
        if not found:
            raise TopicNotFound(f"topic {topic} is on no broker: check the name, or create it")
        return found

    async def _with_neighbours(self, topic: str, configs: Configs) -> dict[str, str]:
        """Add the other brokers of the clusters to the configurations; return the addresses of all."""
        info = await self.cluster_info()
        masters = await self._masters()
        clusters = [set(names) for names in info.clusters.values()]
        neighbours = {name for names in clusters if names & set(configs) for name in names}
        add_other_brokers(topic, configs, sorted(neighbours & set(masters)))
        return masters

    async def _wait_for_brokers(self, topic: str, brokers: set[str], timeout_seconds: float) -> None:
        """Wait until the route has all brokers; Apache's register a moment after they have answered."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while True:
            missing = brokers
            with suppress(TopicNotFound):
                missing = brokers - set((await self.topic_route(topic)).brokers)
            if not missing:
                return
            if loop.time() > deadline:
                raise ClientError(
                    f"static topic {topic} is created, but the name servers do not list "
                    f"{', '.join(sorted(missing))} for it after {timeout_seconds} s: check that those "
                    "brokers can reach the name servers"
                )
            await asyncio.sleep(_POLL_SECONDS)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
