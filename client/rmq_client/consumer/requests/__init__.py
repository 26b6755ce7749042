"""A consumer's requests to brokers: pull, pop, acknowledge, change the invisible time."""
