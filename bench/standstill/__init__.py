"""How long one client may stop all others: a witness beside each abuse of the broker.

Each scenario of `bench.standstill.scenarios` has a broker of its own. While the scenario does what
it does, a witness sends messages through a queue of its own and waits for each. Measured are the
longest pass of the broker's event loop and the longest silence of the witness, both in processor
time of the broker's main thread, so that other work on the machine makes no difference; and the
same silence by the clock on the wall.
"""
