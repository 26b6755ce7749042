"""Replication of the commit log between a master and the replicas of its group.

`protocol.py` has the bytes on the wire. The master's end is `serving.py`, with one `sending.py` for each
replica. The replica's end is `following.py`; `comparison.py` finds the part of its log that the master has.
"""
