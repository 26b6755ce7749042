"""An access log processed by a broker and Spark: `make pipeline`. Described in docs/pipeline.md.

Each module except the shared ones (`lines`, `records`, `programs`, `spark_cluster`) is a program: `python -m
examples.pipeline.NAME --help`.
"""
