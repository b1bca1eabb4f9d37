"""Page-out: messages that are on disk only, while there are too many for memory."""
