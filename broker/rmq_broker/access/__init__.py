"""Access control of the broker: what each of its requests needs."""
