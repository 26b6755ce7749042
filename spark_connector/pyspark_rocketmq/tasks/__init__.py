"""The executors' half of reading: connect, fetch ahead, decode."""
