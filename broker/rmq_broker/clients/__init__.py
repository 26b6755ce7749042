"""Connected producers and consumers, and the queue locks of ordered consumers."""
