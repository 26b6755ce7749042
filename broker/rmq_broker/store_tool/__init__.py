"""The command `rmq-store`: inspects a store directory, and rebuilds its queues and index.

It reads the files with its own code, not with the broker's, so that a mistake in the broker's code shows.
"""
