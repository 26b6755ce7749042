"""The Spark connector beside Spark's own Kafka source."""
