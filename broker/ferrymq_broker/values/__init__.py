"""The names, patterns, rights and policies that the configuration and the broker share."""
