"""SimpleConsumer: the application receives and acknowledges message by message."""
