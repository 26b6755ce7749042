"""POP: messages are popped, hidden for a while, acknowledged one by one, and come back if they are not."""
