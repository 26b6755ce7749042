"""The JSON dialect that Apache's classes read and write with fastjson 1.2.83, and standard JSON.

Beyond standard JSON the dialect has integers and objects as bare map keys (`{0:100}`, `{{"queueId":0}:100}`)
and `{"$ref":"$.path"}` for an object that was written before. The reader accepts both. The writer writes bare
keys, which every Java client reads, but never references.
"""

from __future__ import annotations

from .fastjson_limits import REQUEST_LIMITS, JsonLimits
from .fastjson_reader import loads
from .fastjson_writer import dumps, dumps_pretty, dumps_standard, wire_form
from .object_key import ObjectKey

__all__ = [
    "REQUEST_LIMITS",
    "JsonLimits",
    "ObjectKey",
    "dumps",
    "dumps_pretty",
    "dumps_standard",
    "loads",
    "wire_form",
]
