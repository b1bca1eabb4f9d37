"""Benchmarks: `python -m bench` measures ferrymq and its peers side by side.

Every figure is reported beside that of a peer measured in the same run, because absolute figures
vary between machines and from hour to hour. `cli` is the command; `parts` has what is measured,
`loops` the loops that are compiled together with the code they measure, `peers` what ferrymq is
compared with.
"""
