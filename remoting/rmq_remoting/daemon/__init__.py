"""The parts that every daemon has: settings, logs, life cycle, background tasks, metrics.

These modules know nothing of brokers, and the SDK imports none of them. Each is imported only where it is
needed, because a daemon's start takes milliseconds.
"""
