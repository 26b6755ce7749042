"""Bodies of messages as values of the application: serializers, encoding and decoding."""
