"""Several brokers on one host (`rmq-broker --shards N`): a process for each, and one supervisor."""
