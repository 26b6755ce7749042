"""Access control of both daemons: users, their rules, and the check of each request."""
