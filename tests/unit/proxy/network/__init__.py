"""Parts of the proxy's remoting port without brokers."""
