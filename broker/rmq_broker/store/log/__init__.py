"""The commit log: files, records, and reading them."""
