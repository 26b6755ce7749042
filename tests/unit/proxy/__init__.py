"""The proxy without its server."""
