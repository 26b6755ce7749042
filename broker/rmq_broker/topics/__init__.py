"""Topics: their names, configuration and attributes."""
