"""Tests of rmq_client."""
