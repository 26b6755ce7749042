"""Message traces: what became of which message, kept in a topic of its own."""
