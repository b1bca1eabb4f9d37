"""Replication: the members of a cluster share one journal, and one of them is the leader."""
