"""The message store: commit log, consume queues, recovery. It knows nothing of the network."""
