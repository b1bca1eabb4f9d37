"""The loops that are compiled together with the code they measure or drive."""
