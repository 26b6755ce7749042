"""Access control: users, and the check of each request's signature."""
