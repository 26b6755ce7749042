"""The gRPC port of the proxy, without brokers."""
