"""Spark benchmarks: `python -m bench.spark` measures streams in and out of PySpark.

Everything runs on one machine: a broker's process, Spark with two cores, and its Python workers.
Every figure stands beside that of `plain`, a data source that makes the same columns of nothing:
what Spark itself takes for the same rows in the same round.
"""
