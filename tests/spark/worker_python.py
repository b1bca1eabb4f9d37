"""A Python for Spark's own processes that does not compile PySpark at each start.

Spark puts the archive of PySpark in front of their path. Python keeps no bytecode for an archive,
so each process would compile all modules: two thirds of the time until it works. The installed
package has the same modules.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

_SCRIPT: Final = """\
#!/bin/sh
rest=
IFS=:
for place in $PYTHONPATH; do
    case $place in
    */pyspark.zip) ;;
    *) rest=$rest:$place ;;
    esac
done
export PYTHONPATH="${{rest#:}}"
exec {python} "$@"
"""


def write_worker_python(folder: Path) -> str:
    """Write the program into a folder, and return its path for ``PYSPARK_PYTHON``."""
    path = folder / "worker-python"
    path.write_text(_SCRIPT.format(python=shlex.quote(sys.executable)), "utf-8")
    path.chmod(0o755)
    return str(path)
