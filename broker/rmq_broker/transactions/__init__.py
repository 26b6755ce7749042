"""Transactions: messages that consumers receive only after their producer has committed them."""
