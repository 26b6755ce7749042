"""Benchmark of the Spark connector against Spark's own Kafka source."""
