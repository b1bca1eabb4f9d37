"""What is measured: one module a part, each started by `bench.worker` or driving processes."""
