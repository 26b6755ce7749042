"""Parts that tests and benchmarks share: brokers, servers, foreign programs, fault injection."""
