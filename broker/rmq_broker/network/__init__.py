"""The broker's ports, its address, and the tiers that requests run in."""
