"""The descriptor pool of the generated modules.

The default pool of a process refuses a second definition of a name. Apache's Python client defines the same
names there, and an application may use both in one process.
"""

from __future__ import annotations

from google.protobuf import descriptor_pool, duration_pb2, timestamp_pb2

POOL = descriptor_pool.DescriptorPool()
for _module in (duration_pb2, timestamp_pb2):
    POOL.AddSerializedFile(_module.DESCRIPTOR.serialized_pb)
