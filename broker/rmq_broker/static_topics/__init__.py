"""Static topics: requests about logical queues, whose messages are in queues of several brokers.

Which broker has which part is in the topic table (`topics/queue_mapping.py`). Sends need no more than that
(`sending/routes.py`).

| module | content |
|---|---|
| `requests.py` | requests about logical queues, rewritten into requests about physical ones |
| `other_brokers.py` | requests to the brokers that have the other parts |
| `pulls.py`, `pull_offsets.py` | pulls, and the offsets in their responses |
| `cleaning.py` | removal of parts whose messages have been deleted |
"""
