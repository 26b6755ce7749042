"""One of three brokers becomes slow, freezes or stops: no send fails, and no acknowledged message is lost."""

from __future__ import annotations

from rmq_client import FaultTolerance, Producer
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.send_faults import BrokerFault, PacedSends, three_brokers

_PER_SECOND = 100
# Far below the time of a send that waits for the failing broker, far above that of other sends.
_SOON_SECONDS = 1.0


async def test_no_send_fails() -> None:
    tolerance = FaultTolerance.v5(start_detector=True)
    async with three_brokers() as cluster:
        async with Producer(cluster.address, group="g", fault_tolerance=tolerance) as producer:
            sends = PacedSends(producer, _PER_SECOND)
            for fault in BrokerFault:
                await sends.run(0.3)
                await cluster.break_one(fault, slow_seconds=1.5)
                await sends.run(1.2)
                later = await sends.run(0.5)
                await sends.end()
                await cluster.mend(fault)
                assert sends.failures == [], fault
                assert sends.median_seconds(later, later + 0.5) < _SOON_SECONDS, fault
        assert sends.acknowledged <= set(await cluster.stored(sends.acknowledged))
