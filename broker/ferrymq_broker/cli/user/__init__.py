"""``ferrymq user``: who may connect, and with which password."""
