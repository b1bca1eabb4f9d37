"""Services other than ferrymq: Event Hubs, with its own addresses and management."""
