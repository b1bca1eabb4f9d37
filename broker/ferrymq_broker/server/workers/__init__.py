"""Several processes that serve one broker: each has some of the virtual hosts."""
