"""Header serializations: JSON and ROCKETMQ (binary)."""
