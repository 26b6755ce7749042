"""Apache RocketMQ remoting protocol: frames, headers, bodies, messages, and a thin asyncio shell."""
