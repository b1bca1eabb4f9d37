"""Topics: each message goes to every subscription that wants it."""
