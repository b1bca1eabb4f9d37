"""What outlives the process: changes in batches, a journal of them, and the records they make."""
