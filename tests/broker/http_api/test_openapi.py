"""The OpenAPI document is valid, and describes the types that there are."""

from __future__ import annotations

from openapi_spec_validator import validate

from tests.broker.http_api.conftest import serving


async def test_the_document_is_valid_and_complete() -> None:
    async with serving() as api:
        document = await api.ask("GET", "openapi.json")
        types = (await api.ask("GET", ""))["types"]
    validate(document)
    paths = document["paths"]
    methods = {"CREATE": "put", "READ": "get", "UPDATE": "patch", "DELETE": "delete"}
    for name, type in types.items():
        properties = document["components"]["schemas"][name]["properties"]
        assert set(type["attributes"]) <= set(properties), name
        assert "get" in paths[f"/{name}"]
        for operation in type["operations"]:
            if (name, operation) == ("binding", "CREATE"):
                described = paths["/binding"]["post"]
            elif operation in methods:
                described = paths[f"/{name}/{{name}}"][methods[operation]]
            else:
                described = paths[f"/{name}/{{name}}/{operation.lower()}"]["post"]
            assert described["summary"], (name, operation)
    queue = document["components"]["schemas"]["queue"]["properties"]
    assert queue["overflow"]["enum"][0] == "reject"
    names = [each.get("operationId") for path in paths.values() for each in path.values()
             if isinstance(each, dict)]  # fmt: skip
    assert len(names) == len(set(names))
