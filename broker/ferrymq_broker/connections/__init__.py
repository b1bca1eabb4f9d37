"""Connections: the part between the engine and the nodes, which gives a client's links their
meaning."""
