"""Sends: check a producer's messages, plan how to store them, store and count them, and encode the answer."""
