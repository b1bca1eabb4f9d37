"""A Spark cluster of two workers on loopback, and the ways to bring the data source to it.

``python -m tests.spark.cluster`` goes through all of them: ``--py-files``, a wheel in the Python of
executors, and an archive of a whole environment. One of them is a test of the suite.
"""
