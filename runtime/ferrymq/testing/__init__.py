"""Help for the tests of programs that use ferrymq: `strategies` has those for Hypothesis."""
