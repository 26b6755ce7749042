"""Slave acting master: the replica with the smallest broker id acts while its master is away."""
