"""Which address is which node: virtual hosts, aliases, what is made for a name by itself."""
