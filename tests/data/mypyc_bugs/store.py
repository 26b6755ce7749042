"""A store in compiled code releases the old value before the new one is in its place."""

import gc
import weakref

from rmq_broker.compiled import Holder


class Value:
    pass


def read(_):
    # The value is being freed, and `holder` still refers to it.
    seen.append(holder.value)


seen = []
for _ in range(100):
    value = Value()
    holder = Holder(value)
    watch = weakref.ref(value, read)
    del value
    holder.store(Value())
    assert seen.pop() is holder.value, "the callback read an object that was freed"
gc.collect()
