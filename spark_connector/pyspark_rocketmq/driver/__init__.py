"""The driver's half of reading: which queues, from which to which offset, in which tasks."""
