"""PullConsumer: the application polls for messages."""
