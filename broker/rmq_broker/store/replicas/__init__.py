"""Replicas of this store's log, as its master sees them; the network part is `rmq_broker.replication`."""
