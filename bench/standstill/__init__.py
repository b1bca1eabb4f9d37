"""Measures how long one client can block all others: a harmless client is timed meanwhile.

Each scenario of `bench.standstill.scenarios` has its own broker. While the scenario runs, a
harmless client, the witness, sends messages through its own queue and waits for each. The benchmark
measures the longest pass of the broker's event loop, and the longest wait of the witness. Both are
processor time of the broker's main thread, so that other load on the machine makes no difference;
the wait is also measured in real time.
"""
