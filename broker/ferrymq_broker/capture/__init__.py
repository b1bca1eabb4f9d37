"""Capture: streams written to Parquet files, by a process of its own.

    log ── feed.Feed ── chunks ──▶ child: writer.FileWriter ── files
     ▲                                       │
     └── hold ◀── capture.Capture ◀── closed ┘

`Capture` reads the logs of streams that are to be captured and hands chunks to the child, as far as
it has kept up. The child says which files are there, durably; only then does the hold of a stream
move, and its limits let records go. If the child ends it is started again and goes on behind the
last file there is, and the broker with it: files are all the state that capture has.
"""
