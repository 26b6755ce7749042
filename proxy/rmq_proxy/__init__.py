"""The gRPC face of RocketMQ: serves the 5.x clients from brokers that speak the remoting protocol."""
