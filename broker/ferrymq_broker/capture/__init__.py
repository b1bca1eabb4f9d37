"""Capture: streams written to Parquet files, by a process of its own.

    log ── PartitionFeed ── chunks ──▶ child: FileWriter ── files
     ▲                                     │
     └── hold ◀── CaptureService ◀── closed ┘

`CaptureService` reads the logs of captured streams and sends chunks to the child process, as fast
as the child handles them. The child reports which files are durably on disk. Only then does the
hold of a stream move, so that the stream's limits can remove records. If the child process ends,
the broker starts it again, and capture goes on after the last file. The same happens after a
restart of the broker: the files are the only state of capture.
"""
