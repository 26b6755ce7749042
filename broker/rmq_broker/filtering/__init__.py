"""Message filters: tags and SQL92 expressions over message properties."""
