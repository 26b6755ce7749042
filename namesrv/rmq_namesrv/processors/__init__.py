"""Request processors: one module per family of codes, translating between the protocol and the tables."""
