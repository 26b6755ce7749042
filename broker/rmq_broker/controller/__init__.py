"""A broker's side of Apache's controller, which elects the master of each group.

`controllers.py` sends the requests, `identity.py` keeps the id that the controller gave, and `member.py`
finds out this broker's role. `rmq_broker/controlled.py` runs the broker in that role.
"""
