"""Broker, store, clients, network and disk in one process, under one clock and one seed.

    python -m tests.simulation SEED [SEEDS]

Everything real but what it stands on: the clients are those users import, the broker and its store
are those that serve; the event loop, its clock, the network between them and the disk below them
are simulated, and do the worst they can. A seed decides everything, so a seed that fails does so
again.
"""
