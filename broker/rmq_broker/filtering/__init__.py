"""Which messages a consumer gets: SQL92 expressions over the messages' properties."""
