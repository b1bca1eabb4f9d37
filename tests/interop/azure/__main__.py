"""Azure's SDKs on the broker, feature by feature, and the page that the results make.

python -m tests.interop.azure run [--client CLIENT ...] [--case NAME ...]
python -m tests.interop.azure page

`run` writes tests/interop/azure/results.json, and keeps there what it has of other clients; with
`--case` it writes nothing. `page` writes docs/broker/azure-compatibility.md from it.
"""

from __future__ import annotations

import sys

from tests.interop.azure.suite import SUITE

if __name__ == "__main__":
    parser, _ = SUITE.parser(__doc__)
    sys.exit(SUITE.main(parser.parse_args()))
