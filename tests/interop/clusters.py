"""A name server and its broker, of this project or Apache's."""

from __future__ import annotations

from tests.support.apache import ApacheBroker, ApacheNamesrv
from tests.support.own_servers import OwnBroker, OwnNamesrv

Own = tuple[OwnNamesrv, OwnBroker]
Apache = tuple[ApacheNamesrv, ApacheBroker]
Cluster = Apache | Own
