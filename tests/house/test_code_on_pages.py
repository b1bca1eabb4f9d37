"""Every Python block of the documentation is run by a test; this says by which."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker import test_pages as of_broker
from tests.client import test_pages as of_client
from tests.house.test_docs import DOCS, FENCE, PROGRAMS, ROOT
from tests.spark import test_pages as of_spark
from tests.support.reader import blocks

# `test_tutorial.py` and `test_readme.py` follow these from the top to the end.
FOLLOWED = {"tutorial/README", "tutorial/worker"}
# `tests/codegen/test_installed.py` runs these with the package that they generate.
GENERATED = {f"client/{of_client.GENERATED}"}
# `tests/types_0_9_1/test_page.py` runs this one.
FRAMES = {"generator"}
# `tests/testing/test_page.py` runs these with pytest.
WITH_PYTEST = {"testing-with-a-broker"}
# `test_rabbitmq.py` and `test_azure.py` of the client, and `administration/test_page.py` of the
# broker run these, and `rabbitmq/channels_0_9_1/test_page.py`.
SERVICES = {
    "client/azure",
    "client/rabbitmq",
    "broker/amqp-0-9-1",
    "broker/azure-administration",
    "broker/rabbitmq",
}
RUN = {
    *of_broker.PAGES,
    *of_client.PAGES,
    *of_spark.PAGES,
    *FOLLOWED,
    *FRAMES,
    *GENERATED,
    *SERVICES,
    *WITH_PYTEST,
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT / "docs").with_suffix("").as_posix()


@pytest.mark.parametrize("page", DOCS, ids=name_of)
def test_every_python_block_is_run(page: Path) -> None:
    found = FENCE.findall(page.read_text("utf-8"))
    python = [code for indent, language, code in found if language == "python"]
    programs = [code for of_page, code in PROGRAMS if of_page == page]
    rest = [code for code in python if code not in programs]
    if rest:
        assert name_of(page) in RUN, "no test runs the code of this page"
        assert not [1 for indent, language, _ in found if language == "python" and indent]


def test_readme_has_only_code_that_is_followed() -> None:
    found = blocks((ROOT / "README.md").read_text("utf-8"))
    assert {language for language, _ in found} <= {"sh", "python", "toml"}
