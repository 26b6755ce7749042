"""Transactions: messages that consumers get only once their producer says so."""
