"""The gRPC port: TLS with certificates that can be replaced, and plain text beside it."""
