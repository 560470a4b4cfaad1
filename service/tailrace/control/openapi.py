"""The OpenAPI 3.1 document of the table of routes."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tailrace.control.action import Action, Route
from tailrace.version import __version__

_REFUSALS = {
    "default": {
        "description": "Refused: one sentence that says why, and what to do.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}
_MESSAGE = {
    "type": "object",
    "required": ["message"],
    "properties": {"message": {"type": "string"}},
}


def document(routes: Iterable[Route]) -> Mapping[str, Any]:
    """The document, in JSON types."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tailrace", "version": __version__},
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "http.token"},
                "header": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Tailrace-Change",
                    "description": "On loopback, where no http.token is configured. Any value.",
                },
            }
        },
    }


def _operation(route: Route) -> Mapping[str, Any]:
    changes = isinstance(route, Action) and route.changes
    schema = _MESSAGE if changes else {} if route.gives.endswith("json") else {"type": "string"}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}{re.sub('[^a-z]+', '_', route.path).rstrip('_')}",
        "responses": {
            str(route.status): {
                "description": "Done." if changes else "The answer.",
                "content": {route.gives: {"schema": schema}},
            },
            **_REFUSALS,
        },
    }
    operation["parameters"] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1, "pattern": "^[^/]+$"},
        }
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    if isinstance(route, Action):
        operation["security"] = [{"token": []}, {"header": []} if changes else {}]
        taken = route.request.model_json_schema()
        if route.method == "POST":
            content = {"application/json": {"schema": taken}}
            if "wait" in taken.get("properties", {}):
                wait = {"name": "wait", "in": "query", "required": False}
                operation["parameters"].append(wait | {"schema": taken["properties"]["wait"]})
            operation["requestBody"] = {"required": bool(taken.get("required")), "content": content}
        else:
            operation["parameters"] += [
                {
                    "name": name,
                    "in": "query",
                    "required": name in taken.get("required", ()),
                    "schema": each,
                }
                for name, each in taken.get("properties", {}).items()
            ]
    return operation
