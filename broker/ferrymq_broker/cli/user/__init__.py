"""``ferrymq user``: commands that change the file of users."""
