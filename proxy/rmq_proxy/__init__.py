"""The gRPC face of RocketMQ: serves the 5.x clients from brokers that speak the remoting protocol."""

import os

# gRPC's library would otherwise write a line for each failed handshake, so that strangers could fill the log.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
