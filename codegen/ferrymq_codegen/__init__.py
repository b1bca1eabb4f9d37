"""The generator: AMQP type XML in, typed Python out.

Stages, one module each: `read` (XML, DTD validation) → `model` (what the files say) → `resolve`
(what it means; every mistake is found here) → `render` (templates) → `format` (black) → `verify`
(the result imports and passes mypy) → `output` (compare or write). `diff` compares two specs.

Nothing else that ships imports it, and it imports nothing else that ships.
"""

from __future__ import annotations
