"""A PySpark data source for RocketMQ: `spark.read.format("rocketmq")`."""
