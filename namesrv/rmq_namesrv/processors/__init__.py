"""What answers requests: one module per family, translating between the protocol and the tables."""
