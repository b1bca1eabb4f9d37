"""The broker as it was: nodes, messages, subscriptions and termini from the records of its store."""
