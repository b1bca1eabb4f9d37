"""The shipped pipelines, a module each: pure functions from data frame to data frame, and `run`.

They are what ``ferrymq pipeline`` runs, and meant to be read, called and copied.
"""
