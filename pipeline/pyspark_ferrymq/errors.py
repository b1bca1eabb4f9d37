"""What the data source raises.

    AmqpSourceError              everything below
     ├─ AmqpOptionError          an option, named, is wrong; so is a column of a frame to be written
     ├─ AmqpDataLossError        records that were to be read are gone
     └─ AmqpWriteError           a batch was not written; nothing of it is there

Spark shows the message of what fails in a task or in the driver's process, with a traceback around
it. So messages say all there is to know: the option, the node, the range, the remedy.
"""

from __future__ import annotations


class AmqpSourceError(Exception):
    """Something the data source `amqp` was asked for cannot be done."""


class AmqpOptionError(AmqpSourceError, ValueError):
    """An option or a column is wrong. The message names it, what it says and what it may say."""


class AmqpDataLossError(AmqpSourceError):
    """Records that a query was to read are not there any more.

    The message names stream, partition, the range expected and the range there is, and the remedy.
    """


class AmqpWriteError(AmqpSourceError):
    """A task did not write its rows: none of them is at the broker."""
