"""Addresses and their nodes: virtual hosts, aliases, declared nodes, templates."""
