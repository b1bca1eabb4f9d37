"""Benchmarks: `python -m bench` measures ferrymq and its peers side by side.

Every figure stands beside one of something else that was measured in the same run, because
absolute figures move from machine to machine and from hour to hour. `cli` is the command;
`parts` holds what it measures, `loops` the loops that are compiled together with the code they
measure, `peers` what ferrymq is compared with.
"""
