"""The class `Admin`: administration of topics, groups, offsets, messages, brokers and access control."""

from __future__ import annotations

from .access_copies import AccessCopyAdmin
from .brokers import BrokerAdmin
from .cold_data import ColdDataAdmin
from .controller_changes import ControllerChangeAdmin
from .dead_letters import DeadLetterAdmin
from .name_servers import NameServerAdmin
from .offset_changes import OffsetChangeAdmin
from .queries import QueryAdmin
from .static_topics import StaticTopicAdmin


class Admin(
    DeadLetterAdmin,
    QueryAdmin,
    OffsetChangeAdmin,
    StaticTopicAdmin,
    BrokerAdmin,
    ColdDataAdmin,
    ControllerChangeAdmin,
    NameServerAdmin,
    AccessCopyAdmin,
):
    """Administration of a cluster.

    ::

        async with Admin("127.0.0.1:9876") as admin:
            await admin.create_topic("orders", queues=8)

    Changes go to all masters of the cluster; `cluster` or `broker_name` restrict them. Every method raises
    ClientError, with what to do in its text.
    """
