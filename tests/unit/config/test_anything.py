"""Whatever the file holds: settings, or problems, and never anything else."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.config import Settings, loads, masked, parse, schema
from tailrace.errors import ConfigurationError
from tests.unit.config.files import MINIMAL, minimal

WORDS = sorted(
    {
        *schema()["properties"],
        *(key for body in schema()["$defs"].values() for key in body["properties"]),
        *(
            "log",
            "jsonl",
            "python",
            "sqlite",
            "mongodb",
            "memory",
            "orders",
            "shop",
            "now",
            "$match",
        ),
        *("${X}", "${X", "${X:-1}", "${EMPTY}", "mongodb://h/", "package.module:name", "a.b", ""),
    }
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(WORDS),
    st.datetimes(),
    st.dates(),
)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=5),
    ),
    max_leaves=20,
)


def settle(read: Any) -> None:
    try:
        result = read()
    except ConfigurationError as error:
        problems = error.problems
    else:
        assert isinstance(result, Settings)
        assert masked(result)
        return
    assert problems
    assert all(problem.message for problem in problems)


@settings(deadline=None)
@given(DATA)
def test_any_data(data: Any) -> None:
    settle(lambda: parse(data))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(schema()["properties"])), DATA)
def test_any_section_in_a_good_file(section: str, data: Any) -> None:
    settle(lambda: parse(minimal(**{section: data})))


KINDS = ["scopes", "handlers", "routes", "checkpoint", "delivery", "http", "mongodb"]


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(WORDS), DATA, max_size=6),
    st.sampled_from(["log", "jsonl", "python"]),
)
def test_any_keys_in_a_good_file(kind: str, keys: dict[str, Any], word: str) -> None:
    section: Any = {
        "scopes": [{"name": "orders", **keys}],
        "handlers": {"log": {"type": word, **keys}},
        "routes": [{"scope": "orders", "handlers": ["log"], **keys}],
        "checkpoint": {"store": "mongodb", **keys},
    }.get(kind, keys)
    settle(lambda: parse(minimal(**{kind: section})))


@settings(deadline=None)
@given(DATA)
def test_any_data_as_yaml(data: Any) -> None:
    text = yaml.safe_dump(data, allow_unicode=True)
    settle(lambda: loads(text, {"X": "5", "EMPTY": ""}))


@settings(deadline=None)
@given(st.text())
def test_any_text(text: str) -> None:
    settle(lambda: loads(text, {"X": "5"}))
    settle(lambda: loads(MINIMAL + text, {"X": "5"}))


@settings(deadline=None)
@given(st.text(alphabet="${}:-X ", max_size=12), st.text(max_size=5))
def test_any_interpolation(written: str, value: str) -> None:
    body = f"{MINIMAL}http:\n  port: {written}\n  host: {written}\n"
    settle(lambda: loads(body, {"X": value}))
