"""Message traces: who sent and consumed which message, stored in a topic of their own."""
