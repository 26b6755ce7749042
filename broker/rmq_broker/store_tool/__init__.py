"""The command `rmq-store`: looks into a store directory, and builds queues and index again.

What is in the files is read here by code of its own, not by the broker's: a mistake there has to show here.
"""
