"""Access control of the gRPC port: signatures of calls, and the rights of their users."""
