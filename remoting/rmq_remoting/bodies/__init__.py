"""Typed JSON bodies, one module per area.

Python names are Apache's in snake_case, with Apache's abbreviations spelled out. A field's alias is its name
on the wire. Points in time are milliseconds since 1970 UTC. Java's sets are lists without duplicates, in any
order.
"""
