"""A query of Spark on a cluster, whose every part is killed again and again.

``python -m tests.spark.kills`` is its command line. Two brokers, of which one has a standby and
PostgreSQL, a master, two workers, and a driver are processes of their own. The query reads a stream
from both brokers and writes another one to both, exactly once. A ledger of what the producers were
told is compared with what is there in the end.
"""
