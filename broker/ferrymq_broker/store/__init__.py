"""The durable store: changes in batches, a journal of the batches, and the resulting records."""
