"""Reading messages for consumers."""
