"""The RocketMQ name server."""
