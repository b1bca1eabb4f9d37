"""Between the engine and the nodes: what a client's links mean to the broker."""
