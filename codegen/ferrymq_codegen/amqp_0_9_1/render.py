"""Stage 3: the templates, and the header and imports of each rendered module."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ferrymq_codegen import module_text
from ferrymq_codegen.amqp_0_9_1.names import module_name
from ferrymq_codegen.amqp_0_9_1.resolve import Protocol
from ferrymq_codegen.amqp_0_9_1.views import class_view, constant_views
from ferrymq_codegen.docs import docstring

COMMAND: Final = "python -m codegen generate"

IMPORTS: Final = {
    "dataclass": "dataclasses",
    "datetime": "datetime",
    "Final": "typing",
    "TypeAlias": "typing",
    **dict.fromkeys(["BytesWriter", "read_i32_be", "read_i64_be", "write_i32_be"], "librt.strings"),
    **dict.fromkeys(["i64", "u8"], "mypy_extensions"),
    "as_bytes": "ferrymq_codec.composite",
    "declare": "ferrymq_codec.declared",
    **dict.fromkeys(["Method", "identify"], "ferrymq_codec_0_9_1.method"),
    **dict.fromkeys(["ContentProperties", "identify_properties"], "ferrymq_codec_0_9_1.properties"),
    "FieldReader": "ferrymq_codec_0_9_1.reader",
    "UnknownMethod": "ferrymq_codec_0_9_1.unknown_method",
    **dict.fromkeys(["read_table", "skip_table", "write_table"], "ferrymq_codec_0_9_1.tables"),
    **dict.fromkeys(
        [
            *("check_length", "check_pattern", "write_octet", "write_short", "write_long"),
            *("write_longlong", "write_short_string", "write_long_string", "write_timestamp"),
            "write_u16",
        ],
        "ferrymq_codec_0_9_1.writer",
    ),
    **dict.fromkeys(["begin_frame", "end_frame"], "ferrymq_codec_0_9_1.frames"),
}
"""The module of each name that generated code may use."""


def render(protocol: Protocol, package: str, command: str = COMMAND) -> dict[str, str]:
    """Return the text of every file of the output by its name, not yet formatted.

    `package` is the import name that the output will have, `command` the one that writes it again.
    """
    environment = module_text.environment(Path(__file__).with_name("templates"))
    head = module_text.header(protocol.sources, command)
    files = {"py.typed": "", "__init__.py": _package_file(protocol, head)}
    for cls in protocol.classes:
        view = class_view(protocol, cls)
        body = environment.get_template("class.py.jinja").render(view=view)
        extra = ["import re"] if view.patterns else []
        files[f"{view.module}.py"] = _wrap(head, view.doc, body, {}, extra)
    body = environment.get_template("constants.py.jinja").render(constants=constant_views(protocol))
    doc = docstring("Constants of AMQP 0-9-1: frames, reply codes and what they close.", 0, "")
    files["constants.py"] = _wrap(head, doc, body, {}, [])
    views = [class_view(protocol, cls) for cls in protocol.classes]
    properties = [view for view in views if view.properties is not None]
    modules = {package: [f"{view.module} as _{view.module}" for view in views]}
    # A module of its own: it is data, which gains nothing when it is compiled.
    body = environment.get_template("methods.py.jinja").render(classes=views)
    doc = docstring("Every method by its indices and by its name.", 0, "")
    files["methods.py"] = _wrap(head, doc, body, modules, [])
    body = environment.get_template("registry.py.jinja").render(classes=views, contents=properties)
    text = "Methods by their indices, and whole frames with methods and contents."
    froms: dict[str, list[str]] = {
        "ferrymq_codec_0_9_1.frames": [
            "HEADER",
            "METHOD",
            "write_body_frames as write_body_frames",
            "write_heartbeat as write_heartbeat",
            "write_raw_header",
        ],
        f"{package}.methods": ["METHODS as METHODS", "NAMES as NAMES"],
        **modules,
    }
    files["registry.py"] = _wrap(head, docstring(text, 0, ""), body, froms, [])
    return files


def _wrap(head: str, doc: str, body: str, froms: dict[str, list[str]], plain: list[str]) -> str:
    """Return a module: `body` with the header, its docstring and the imports that it needs."""
    needed = {module: list(names) for module, names in froms.items()}
    for name in sorted(module_text.used_names(body).intersection(IMPORTS)):
        needed.setdefault(IMPORTS[name], []).append(name)
    imports = [*plain, *module_text.import_lines(needed)]
    lines = [head, doc, "", "from __future__ import annotations", "", *imports, "", ""]
    return "\n".join(lines) + body + "\n"


def _package_file(protocol: Protocol, head: str) -> str:
    """Return the text of `__init__.py`: the methods and properties by name."""
    lines = [f"- `{module_name(cls.name)}`: {cls.label or cls.name}" for cls in protocol.classes]
    lines += [
        "- `registry`: methods by their indices, whole frames",
        "- `methods`: the classes of methods by indices and by name",
        "- `constants`: frames and reply codes",
    ]
    title = "The methods of AMQP 0-9-1, generated from their XML."
    doc = docstring("\n\n".join([title, *lines]), 0, "").replace("\n\n- ", "\n- ")
    doc = doc.replace("\n- ", "\n\n- ", 1)
    return f"{head}\n{doc}\n\nfrom __future__ import annotations\n"
