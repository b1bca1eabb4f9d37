"""Rates and history: samples of the counters that nodes have in any case."""
