"""What the driver decides: which queues, from where and up to where, in which tasks."""
