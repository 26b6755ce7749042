"""Types of the gRPC protocol, generated from `proxy/protos` by `proxy/protos/generate.py`."""
