"""Nodes: what an address can name, and what lies in it."""
