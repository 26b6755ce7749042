"""Consumer groups: their configuration."""
