"""What the performance figures are made with."""
