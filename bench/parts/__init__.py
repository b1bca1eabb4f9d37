"""The parts to measure, one module each, run by `bench.worker` or driving other processes."""
