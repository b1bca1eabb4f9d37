"""Messages that are on disk only, while there are too many to have them in memory."""
