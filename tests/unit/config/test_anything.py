"""Whatever the file contains, loading it gives settings or problems, and nothing else."""

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.config.loading import masked
from tailrace.errors import ConfigurationError
from tests.configuration import loads, schema
from tests.unit.config.files import MINIMAL, minimal

SECTIONS = sorted(schema()["properties"])
WORDS = sorted(
    {
        *SECTIONS,
        *(key for body in schema()["$defs"].values() for key in body["properties"]),
        *("log", "jsonl", "python", "parquet", "sqlite", "mongodb", "memory", "orders", "shop"),
        *("${X}", "${X", "${X:-1}", "${EMPTY}", "mongodb://h/", "package.module:name", "a.b", ""),
        *("now", "$match"),
    }
)
NUMBERS = st.none() | st.booleans() | st.integers() | st.floats()
SCALARS = NUMBERS | st.text(max_size=5) | st.sampled_from(WORDS) | st.datetimes() | st.dates()
DATA = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=20,
)
KEYS = st.dictionaries(st.sampled_from(WORDS), DATA, max_size=6)


def settle(data: Any) -> None:
    settle_text(yaml.safe_dump(data, allow_unicode=True, sort_keys=False))


def settle_text(text: str, **environ: str) -> None:
    try:
        result = loads(text, {"X": "5", "EMPTY": "", **environ})
    except ConfigurationError as refused:
        problems = refused.problems
    else:
        assert masked(result)
        return
    assert problems
    assert all(problem.message for problem in problems)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SECTIONS), DATA)
def test_any_section_in_a_good_file(section: str, data: Any) -> None:
    settle(minimal(**{section: data}))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["scope", "handler", "route", *SECTIONS]),
    KEYS,
    st.sampled_from(["log", "jsonl", "python", "parquet"]),
)
def test_any_keys_in_a_good_file(section: str, keys: dict[str, Any], word: str) -> None:
    settle(minimal(**{section: {"type": word, **keys} if section == "handler" else keys}))


@settings(deadline=None)
@given(st.text())
def test_any_text(text: str) -> None:
    settle_text(text)
    settle_text(MINIMAL + text)


@settings(deadline=None)
@given(st.text(alphabet="${}:-X ", max_size=12), st.text(max_size=5))
def test_any_interpolation(written: str, value: str) -> None:
    settle_text(f"{MINIMAL}http:\n  port: {written}\n  host: {written}\n", X=value)
