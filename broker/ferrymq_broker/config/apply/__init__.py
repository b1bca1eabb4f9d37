"""The configuration applied to a broker: its nodes, conflicts with a store, explanations."""
