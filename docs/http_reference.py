"""The reference of the HTTP API as Markdown, from the table of routes.

``make reference`` writes docs/http.md.
"""

from collections.abc import Iterator
from typing import Any

from tailrace.control.openapi import document
from tailrace.control.routes import routes

_HEAD = """\
# HTTP

<!-- Made by `make reference` from tailrace/control/actions and routes.py. Edit those. -->

Which requests does the daemon answer, what do they take, and who may send them?

The daemon listens on `http.host` and `http.port`. `GET /openapi.json` describes this API for
programs. [security.md](security.md) says who may read and who may change something. Actions need
`Authorization: Bearer TOKEN` with the token or, on loopback without a configured token, the
header `Tailrace-Change` with any value.

An action answers 202 with a JSON object: `message` says what was done. A refusal is one line of
text that says why, and what to do. Then nothing was done:

| status | means |
|---|---|
| 400 | the request is malformed: its body is not JSON, or a key is unknown or has another type |
| 401, 403 | the token or the header is missing |
| 404, 405 | there is no such path, scope or dead letter; the path has other methods |
| 409 | the state of the scope does not allow it |
| 413 | the body is larger than 64 KiB, or the request takes none |
| 422 | it is understood, and can never be done as asked |
| 503 | for now: a scope that is starting, too many requests, or no answer of a store or server |

A body is a JSON object of the keys below; unknown keys are refused. Without a body, the query of an
action has the same keys. Each action, done or refused, is a line of the log (`action.done`,
`action.refused`): what, on which scope, by whom, and `from` where `to` where.
"""


def reference() -> str:
    """The whole page."""
    rows = [f"| `{each.method} {each.path}` | {each.summary} |" for each in routes()]
    table = ["| request | does |", "|---|---|", *rows]
    return "\n".join([_HEAD, *table, *_details()]) + "\n"


def _details() -> Iterator[str]:
    for route in routes():
        operation = document([route])["paths"][route.path][route.method.lower()]
        if keys := list(_keys(operation)):
            yield from ("", f"## `{route.method} {route.path}`", "", "| key | value | meaning |")
            yield "|---|---|---|"
            yield from keys


def _keys(operation: dict[str, Any]) -> Iterator[str]:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    given = {
        each["name"]: each["schema"] for each in operation["parameters"] if each["in"] == "query"
    }
    for name, schema in (body.get("schema", {}).get("properties", {}) | given).items():
        yield f"| `{name}` | {_value(schema)} | {' '.join(schema['description'].split())} |"


def _value(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    words = {"string": "text", "boolean": "true or false", "array": "list", "object": "mapping"}
    return " or ".join(words.get(each["type"], each["type"]) for each in kinds)


if __name__ == "__main__":
    print(reference(), end="")
