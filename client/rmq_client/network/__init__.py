"""The network thread of a client: connections, routes, heartbeats, and requests that brokers send."""
