"""``ferrymq trace``."""
