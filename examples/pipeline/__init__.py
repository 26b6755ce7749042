"""An access log through a broker and Spark: `make pipeline`. Described in docs/pipeline.md.

Each module but the small shared ones (`lines`, `records`, `programs`, `spark_cluster`) is a program:
`python -m examples.pipeline.NAME --help`.
"""
