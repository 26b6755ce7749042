"""The RocketMQ broker."""
