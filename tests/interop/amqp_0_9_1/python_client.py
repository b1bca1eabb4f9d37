"""A program that tries features with a client for Python, or with one that Python starts.

    python -m tests.interop.amqp_0_9_1.python_client {pika,pika_asynchronous,aio_pika,...}

`features/trial` says what it reads and writes.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys

from tests.interop.amqp_0_9_1.place import place
from tests.interop.features.trial import serve

if __name__ == "__main__":
    for name in ("pika", "aio_pika", "aiormq", "amqp", "kombu"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    asyncio.run(
        serve(importlib.import_module(f"tests.interop.amqp_0_9_1.{sys.argv[1]}_cases"), place)
    )
