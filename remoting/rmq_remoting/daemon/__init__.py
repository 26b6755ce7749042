"""What a daemon is, whichever it is: settings, logs, life cycle, background tasks, metrics.

Nothing here knows of brokers, and the SDK imports none of it. Modules are imported one by one where they
are needed: a daemon's start is measured in milliseconds.
"""
