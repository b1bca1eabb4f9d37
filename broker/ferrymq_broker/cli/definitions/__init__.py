"""``ferrymq definitions``."""
