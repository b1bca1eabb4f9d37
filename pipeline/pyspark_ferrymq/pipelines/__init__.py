"""The shipped pipelines, one module each: pure functions between data frames, and `run`.

``ferrymq pipeline`` runs them. They can also be called from other code, or copied.
"""
