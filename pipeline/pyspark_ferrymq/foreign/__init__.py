"""Services that are not ours: Event Hubs, by the addresses and the management it has."""
