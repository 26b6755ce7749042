"""POP: messages are given out, invisible for a time, and redelivered unless they are acknowledged."""
