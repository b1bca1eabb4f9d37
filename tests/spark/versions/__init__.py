"""The data source on each version of Spark that it is for: the run, and the table of the page."""
