"""A freed closure is given to the next call before it is cleared, so that clearing it clears the next one."""

import weakref

from rmq_broker.compiled import closure


class Value:
    pass


def call(_):
    made.append(closure("one", "two"))


made = []
for _ in range(100):
    value = Value()
    watch = weakref.ref(value, call)
    both = closure(value, "last")
    del value
    del both
    assert made.pop()() == ("one", "two")
