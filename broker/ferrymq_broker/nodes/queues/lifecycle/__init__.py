"""The lifecycle of a message in a queue: whether it is admitted, how long it stays, where it
goes."""
