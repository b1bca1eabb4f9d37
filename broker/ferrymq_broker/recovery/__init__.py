"""The broker as it was: nodes, messages and termini from the records of its store."""
