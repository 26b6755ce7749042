"""Opening a store directory: checkpoints and what a crash leaves."""
