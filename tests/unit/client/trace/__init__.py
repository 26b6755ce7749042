"""Tests of message traces."""
