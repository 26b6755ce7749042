"""What tasks do on executors: connect, fetch ahead, decode."""
