"""Consumer offsets: where a group begins in a queue, and the stores of consumed offsets."""
