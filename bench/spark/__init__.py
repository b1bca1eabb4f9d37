"""Spark benchmarks: `python -m bench.spark` measures reading and writing streams with PySpark.

Everything runs on one machine: a broker, Spark with two cores, and its Python workers. Every figure
is compared with that of `plain`, a data source that makes the same columns without a broker: the
time that Spark itself needs for the same rows in the same round.
"""
