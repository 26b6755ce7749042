"""The checkpoint tool, `python -m pyspark_rocketmq.checkpoint`: shows and changes offsets in a checkpoint."""
