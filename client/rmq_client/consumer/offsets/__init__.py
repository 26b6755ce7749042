"""Consumer offsets: where a group begins in a queue, how far it is, and where that is kept."""
