"""Remote escape: a replica that acts as the master stores its messages with another master of the cluster."""
