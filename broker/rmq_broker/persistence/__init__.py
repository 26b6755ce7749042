"""State kept in JSON files."""
