"""PushConsumer: messages are delivered to a listener."""
