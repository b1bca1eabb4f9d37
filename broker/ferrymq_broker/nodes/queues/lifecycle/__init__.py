"""The life of a message in a queue: whether it gets in, how long it stays, where it goes."""
