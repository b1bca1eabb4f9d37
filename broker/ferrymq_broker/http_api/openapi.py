"""The OpenAPI document of the API, made from the types of a virtual host."""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Generator
from typing import Any, Final

from ferrymq_broker.config.nodes import SETTINGS
from ferrymq_broker.management.entity import EntityType
from ferrymq_broker.management.manager import Manager
from ferrymq_broker.management.operation import Operation

Json = dict[str, Any]

# The operations with a method of their own; the others are POST requests to a path of their own.
_METHODS: Final = {"READ": "get", "CREATE": "put", "UPDATE": "patch", "DELETE": "delete"}
# Types whose entities have no name before they are made.
_NAMELESS: Final = ("binding",)
_HOST: Final = {"$ref": "#/components/parameters/virtual-host"}
_NAME: Final = {"$ref": "#/components/parameters/name"}
_FAILURES: Final[Json] = {
    "4XX": {"$ref": "#/components/responses/problem"},
    "5XX": {"$ref": "#/components/responses/problem"},
}


def openapi_document(manager: Manager) -> Generator[None, None, Json]:
    """Return the document (OpenAPI 3.1), type by type. Attributes that are no settings have no
    schema: they are numbers, texts, lists or objects."""
    paths: Json = {
        "/": {
            "get": _operation("Return the types, their attributes and their operations.", "types")
        },
        "/whoami": {
            "get": _operation("Return the user, and the virtual hosts with rights.", "whoami")
        },
        "/openapi.json": {"get": _operation("Return this document.", "openapi")},
    }
    schemas: Json = {}
    types = sorted(manager.types.values(), key=lambda type: type.short)
    for type in types:
        if type.listed:
            _add_type(type, paths, schemas)
            yield
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ferrymq management",
            "version": importlib.metadata.version("ferrymq"),
            "description": "The entities of a broker. Names in paths are percent-encoded. Binary "
            'values that are no UTF-8 are {"base64": "..."}. The field Status-Description of a '
            "response has the description of the result, percent-encoded.",
        },
        "servers": [{"url": "/management/v1"}],
        "security": [{}, {"password": []}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "parameters": _parameters(),
            "responses": {"problem": _problem()},
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _add_type(type: EntityType, paths: Json, schemas: Json) -> None:
    name = type.short
    operations = type.operations()
    settings = _settings(name)
    schemas[name] = {
        "type": "object",
        "description": _text(type),
        "properties": {
            each: settings.get(each, {}) for each in ("identity", "type", *type.attributes)
        },
    }
    entity: Json = {"$ref": f"#/components/schemas/{name}"}
    table: Json = {
        "type": "object",
        "properties": {"total": {"type": "integer"}, "items": {"type": "array", "items": entity}},
    }
    collection: Json = {
        "get": {
            **_operation(f"List entities of the type {name}, in pages.", f"list-{name}", table),
            "parameters": [
                _HOST,
                *({"$ref": f"#/components/parameters/{each}"} for each in ("offset", "count")),
                {"$ref": "#/components/parameters/attributes"},
            ],
        }
    }
    single: Json = {"parameters": [_NAME, _HOST]}
    for key, operation in operations.items():
        method = _METHODS.get(key)
        id = f"{key.lower()}-{name}"
        if method is None:
            post = _operation(_summary(key, operation), id)
            post["requestBody"] = _body(operation, {})
            paths[f"/{name}/{{name}}/{key.lower()}"] = {
                "parameters": [_NAME, _HOST],
                "post": post,
            }
            continue
        described = _operation(_summary(key, operation), id, None if key == "DELETE" else entity)
        if method in ("put", "patch"):
            described["requestBody"] = _body(operation, settings)
        elif operation.arguments:
            described["parameters"] = [
                {"name": each, "in": "query", "schema": {}} for each in operation.arguments
            ]
        if key == "CREATE" and name in _NAMELESS:
            collection["post"] = {**described, "parameters": [_HOST]}
        else:
            single[method] = described
    paths[f"/{name}"] = collection
    paths[f"/{name}/{{name}}"] = single


def _settings(kind: str) -> Json:
    """Return the schemas of the settings of a kind of node, with those that they refer to in their
    place."""
    model = SETTINGS.get(kind)
    if model is None:
        return {}
    schema = model.model_json_schema()
    return {
        name: _inlined(each, schema.get("$defs", {}))
        for name, each in schema.get("properties", {}).items()
    }


def _inlined(schema: Any, defined: Json) -> Any:
    if isinstance(schema, list):
        return [_inlined(each, defined) for each in schema]
    if not isinstance(schema, dict):
        return schema
    name = schema.get("$ref", "").rpartition("/")[2]
    if name in defined:
        return _inlined(defined[name], {k: v for k, v in defined.items() if k != name})
    return {key: _inlined(each, defined) for key, each in schema.items() if key != "title"}


def _operation(summary: str, id: str, schema: Json | None = None) -> Json:
    content = {"application/json": {"schema": {} if schema is None else schema}}
    return {
        "operationId": id,
        "summary": summary,
        "responses": {"2XX": {"description": "Done.", "content": content}, **_FAILURES},
    }


def _body(operation: Operation, settings: Json) -> Json:
    properties = {name: settings.get(name, {}) for name in operation.arguments}
    schema = {"type": "object", "properties": properties}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _summary(name: str, operation: Operation) -> str:
    """Return the first paragraph of the handler's docstring, without "Handle NAME:"; the name of
    the operation without one."""
    text = _text(operation.handler).partition("\n\n")[0].replace("\n", " ")
    text = text.removeprefix(f"Handle {name}").lstrip(":. ")
    return text[:1].upper() + text[1:] or name


def _text(thing: object) -> str:
    return inspect.getdoc(thing) or ""


def _parameters() -> Json:
    number = {"type": "integer", "minimum": 0}
    return {
        "name": {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}},
        "virtual-host": {
            "name": "virtual-host",
            "in": "query",
            "schema": {"type": "string"},
            "description": "The virtual host; without it, that of the host of the request.",
        },
        "offset": {"name": "offset", "in": "query", "schema": {**number, "default": 0}},
        "count": {
            "name": "count",
            "in": "query",
            "schema": {**number, "default": 100, "maximum": 1000},
        },
        "attributes": {
            "name": "attributes",
            "in": "query",
            "schema": {"type": "string"},
            "description": "The attributes to return, with commas between them.",
        },
    }


def _problem() -> Json:
    properties = {
        "status": {"type": "integer"},
        "title": {"type": "string"},
        "detail": {"type": "string"},
    }
    schema = {"type": "object", "properties": properties}
    return {
        "description": "The request failed (RFC 9457).",
        "content": {"application/problem+json": {"schema": schema}},
    }
