"""Tables of the areas that mutations are drawn from, and of the stages of tests that judge them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# The modules of each area: folders and files below the root. A draw takes equally many lines of each area.
AREAS: Final = {
    "store": ("broker/rmq_broker/store",),
    "delivery": (
        "broker/rmq_broker/delivery",
        "broker/rmq_broker/sending",
        "broker/rmq_broker/pulling",
        "broker/rmq_broker/processors/pull.py",
        "broker/rmq_broker/processors/send.py",
        "broker/rmq_broker/processors/send_back.py",
    ),
    "pop": (
        "broker/rmq_broker/pop",
        "broker/rmq_broker/processors/ack.py",
        "broker/rmq_broker/processors/change_invisible.py",
        "broker/rmq_broker/processors/notification.py",
        "broker/rmq_broker/processors/peek.py",
        "broker/rmq_broker/processors/pop.py",
        "broker/rmq_broker/processors/pop_admission.py",
        "broker/rmq_broker/processors/pop_walks.py",
    ),
    "offsets": (
        "broker/rmq_broker/offsets",
        "broker/rmq_broker/processors/offsets.py",
        "broker/rmq_broker/processors/admin/offset_reset.py",
        "broker/rmq_broker/processors/admin/offsets.py",
        "broker/rmq_broker/processors/admin/reset_targets.py",
    ),
    "transactions": ("broker/rmq_broker/transactions", "broker/rmq_broker/processors/transaction.py"),
    "timers": ("broker/rmq_broker/timers", "broker/rmq_broker/processors/recall.py"),
    "replication": (
        "broker/rmq_broker/acting",
        "broker/rmq_broker/controller",
        "broker/rmq_broker/replication",
    ),
    "access control": (
        "broker/rmq_broker/access",
        "proxy/rmq_proxy/access",
        "remoting/rmq_remoting/daemon/access",
        "remoting/rmq_remoting/signing.py",
    ),
    "sdk": ("client/rmq_client",),
    "spark": ("spark_connector/pyspark_rocketmq",),
}

# The folder of the unit tests of each package.
UNIT_TESTS: Final = {
    "broker/rmq_broker": "tests/unit/broker",
    "client/rmq_client": "tests/unit/client",
    "proxy/rmq_proxy": "tests/unit/proxy",
    "remoting/rmq_remoting": "tests/unit/remoting",
    "spark_connector/pyspark_rocketmq": "tests/unit/spark",
}


@dataclass(frozen=True, slots=True)
class Stage:
    """Tests that run after those of the stages before, for mutations which these did not kill.

    `folders` are searched for test files, `options` are for pytest. `bound_s` is the time, in seconds without
    a mutation, that the tests of one mutation may take; tests beyond are left out.
    """

    name: str
    folders: tuple[str, ...]
    bound_s: float
    options: tuple[str, ...] = ()


# `unit` and `test` together are what `make test` runs, and `all` is what `make test-all` runs.
_QUICK: Final = ("--part", "quick")
STAGES: Final = (
    Stage("unit", ("tests/unit",), bound_s=300, options=_QUICK),
    Stage(
        "test",
        (
            "tests/integration",
            "tests/cluster",
            "tests/crash",
            "tests/deploy",
            "tests/interop",
            "tests/pages",
            "tests/spark",
        ),
        bound_s=600,
        options=_QUICK,
    ),
    Stage("all", ("tests",), bound_s=1800, options=("--part", "rest")),
)
