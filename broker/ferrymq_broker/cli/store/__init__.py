"""``ferrymq store``: commands that inspect, check, copy, export and import a store."""
