"""AMQP 0-9-1: its definitions in XML, and `ferrymq_types_0_9_1` made from them.

Nothing here is shared with the generator of AMQP 1.0: 0-9-1 has methods and positions where 1.0 has
described types and constructors.
"""

from __future__ import annotations
