"""What tests and benchmarks share: builds of foreign programs, processes, and Apache's own servers."""
