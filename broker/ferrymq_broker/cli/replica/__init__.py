"""``ferrymq replica``: the cluster of brokers that share a journal."""
