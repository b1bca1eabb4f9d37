"""``ferrymq store``: the files of a store, looked at, checked, copied and taken elsewhere."""
