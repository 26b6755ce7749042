"""Producers: sends, batches, retries, transactions, requests and recalls."""
