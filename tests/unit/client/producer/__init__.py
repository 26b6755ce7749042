"""Tests of sending."""
