"""Typed JSON bodies, one module per area; import the module that is needed.

Python names are Apache's in snake_case, spelled out where Apache shortens them; the wire name of a field is
its alias. Points in time are milliseconds since 1970 UTC. Java's sets are lists here: distinct, any order.
"""
