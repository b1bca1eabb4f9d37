"""Recovery of the broker's state: nodes, messages and termini from the records of its store."""
