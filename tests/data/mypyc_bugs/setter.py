"""A store by interpreted code to an attribute of a compiled class does the same."""

import gc
import weakref

from rmq_broker.compiled import Holder


class Value:
    pass


def read(_):
    seen.append(holder.value)


seen = []
for _ in range(100):
    value = Value()
    holder = Holder(value)
    watch = weakref.ref(value, read)
    del value
    holder.value = Value()
    assert seen.pop() is holder.value, "the callback read an object that was freed"
gc.collect()
