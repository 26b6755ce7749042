"""What makes messages arrive later or again: held pulls now, delays, retries and transactions next."""
