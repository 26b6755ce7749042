"""Rebalancing: which queues of a topic each member of a group consumes."""
