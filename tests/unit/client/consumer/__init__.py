"""Tests of receiving."""
