"""The generator: AMQP type XML in, typed Python out.

Stages, one module each: `read` (XML, DTD validation) → `model` (the content of the files) →
`resolve` (its meaning; every mistake is found here) → `render` (templates) → `format` (black) →
`verify` (the result imports and passes mypy) → `output` (compare or write). `diff` compares two
specs.

No other shipped package imports this package, and it imports no other shipped package.
"""

from __future__ import annotations
