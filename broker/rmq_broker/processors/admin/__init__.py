"""Administration: one module per family of requests (Apache RocketMQ 5.3.3, AdminBrokerProcessor)."""
