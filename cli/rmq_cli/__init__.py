"""The command line `rmq`: administration, messages and measurements of RocketMQ clusters."""
