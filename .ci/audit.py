"""Looks at what ferrymq depends on.

That every import of what ships is declared and everything declared is imported; that no version in
the environment has a known vulnerability, asked of the advisory service by pip-audit. Without a way
to that service it says so and is content. `--licences` lists what there is under which licence.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
OURS = (
    "ferrymq",
    "ferrymq_codec",
    "ferrymq_codec_0_9_1",
    "ferrymq_types",
    "ferrymq_types_0_9_1",
    "ferrymq_broker",
    "ferrymq_servicebus",
    "ferrymq_rabbitmq",
    "pyspark_ferrymq",
    "ferrymq_codegen",
    "ferrymq_pytest",
)
# Who has not got it goes without; it is found by name.
OPTIONAL = {"uvloop"}
# What pyspark wants for some of its functions and does not bring.
FOR_OTHERS = {"pandas"}
# What another brings with it, and pins.
PARTS: dict[str, str] = {"py4j": "pyspark", "pydantic-core": "pydantic"}
NOT_SHIPPED = ("compile", "dev", "docs", "fuzz", "interop")


def main() -> int:
    """Print what is wrong; the status is 1 if anything is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    if "--licences" in sys.argv[1:]:
        for name in closure(["broker", "codegen", "opentelemetry", "spark"]):
            found = metadata.distribution(name)
            print(f"{name} {found.version}: {licence(found)}")
        return 0
    wrong = list(undeclared(project))
    for line in wrong:
        print(line)
    return 1 if wrong or vulnerable() else 0


def undeclared(project: dict[str, object]) -> Iterator[str]:
    """Imports that nothing declares, and declarations that nothing imports."""
    base = names(project["dependencies"])
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    parts = ("broker", "opentelemetry", "replicated")
    broker = base.union(*(names(extras[name]) for name in parts))
    owners = metadata.packages_distributions()
    used: set[str] = set()
    # The client has parts that ask for more when they are used, and say so: extras of their own.
    client = base.union(*(names(extras[name]) for name in extras if name not in NOT_SHIPPED))
    spark = base | names(extras["spark"])
    codegen = base | names(extras["codegen"])
    testing = names(extras["testing"])
    folders = (
        ("generated", base),
        ("runtime", client),
        ("broker", broker),
        ("pipeline", spark),
        ("codegen", codegen),
    )
    for folder, declared in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for line, module in imports(path):
                if module in sys.stdlib_module_names or module in OURS:
                    continue
                found = {canonicalize_name(owner) for owner in owners.get(module, [module])}
                found = {PARTS.get(owner, owner) for owner in found}
                used |= found
                if not found & declared:
                    yield f"{path.relative_to(ROOT)}:{line}: {module} is imported, not declared"
    for name in sorted((broker | spark | codegen | testing) - used - OPTIONAL - FOR_OTHERS):
        yield f"pyproject.toml: {name} is declared, and nothing that ships imports it"


def names(requirements: object) -> set[str]:
    """The distributions that are asked for."""
    assert isinstance(requirements, list)
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """The packages that a module imports, with the lines."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.split(".")[0]


def closure(extras: list[str]) -> list[str]:
    """Every distribution here that ferrymq asks for, with these extras, at any remove."""
    found: set[str] = set()
    todo = [("ferrymq", frozenset(extras))]
    seen = set(todo)
    while todo:
        name, wanted = todo.pop()
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found.add(canonicalize_name(name))
        for text in distribution.requires or []:
            asked = Requirement(text)
            marker = asked.marker
            if marker is None or any(marker.evaluate({"extra": e}) for e in (*wanted, "")):
                step = (canonicalize_name(asked.name), frozenset(asked.extras))
                if step not in seen:
                    seen.add(step)
                    todo.append(step)
    return sorted(found - {"ferrymq"})


def vulnerable() -> bool:
    """Whether pip-audit knows a vulnerability of anything that is installed for us."""
    checked = closure(["broker", "compile", "dev", "docs", "fuzz", "interop", "spark"])
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pins:
        pins.writelines(f"{name}=={metadata.version(name)}\n" for name in checked)
        pins.flush()
        command = [sys.executable, "-m", "pip_audit", "-r", pins.name, "--no-deps", "--disable-pip",
                   "--format=json", "--progress-spinner=off", "--timeout=15"]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
            report = json.loads(done.stdout)
        except (subprocess.TimeoutExpired, ValueError):
            print(
                f"{len(checked)} dependencies: known vulnerabilities not checked, "
                "the advisory service cannot be asked"
            )
            return False
    bad = 0
    for dependency in report["dependencies"]:
        for finding in dependency.get("vulns", []):
            bad += 1
            fixed = ", ".join(finding["fix_versions"]) or "no version yet"
            print(
                f"{dependency['name']} {dependency['version']}: {finding['id']}, fixed in {fixed}"
            )
    print(f"{len(checked)} dependencies: {bad or 'no'} known vulnerabilities")
    return bad > 0


def licence(distribution: metadata.Distribution) -> str:
    """What a distribution says about its licence, in few words."""
    about = distribution.metadata
    short = about.get("License-Expression") or about.get("License") or ""
    if short and "\n" not in short and len(short) < 60:
        return short
    for line in about.get_all("Classifier") or []:
        if line.startswith("License ::"):
            return line.rsplit(" :: ", 1)[1]
    return "not said"


if __name__ == "__main__":
    sys.exit(main())
