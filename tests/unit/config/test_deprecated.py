"""The keys of version 0.1 that ``store`` has replaced: still accepted, with a warning."""

from typing import Any

import pytest

from tailrace.config.store import MemoryStoreSettings, MongodbStoreSettings, SqliteStoreSettings
from tests.unit.config.files import minimal, parse, problems


@pytest.mark.parametrize(
    ("section", "store", "warned"),
    [
        ({"path": "x.db"}, SqliteStoreSettings(path="x.db"), ["path"]),
        ({"store": "sqlite", "path": "x"}, SqliteStoreSettings(path="x"), ["store", "path"]),
        (
            {"store": "mongodb", "database": "d", "collection": "checkpoints"},
            MongodbStoreSettings(type="mongodb", database="d"),
            ["store", "database"],
        ),
        ({"store": "memory"}, MemoryStoreSettings(type="memory"), ["store"]),
        ({"store": None, "path": None, "interval_seconds": 2}, SqliteStoreSettings(), []),
    ],
)
def test_where_checkpoints_were_is_where_the_store_is(
    section: dict[str, Any], store: object, warned: list[str]
) -> None:
    settings = parse(minimal(checkpoint=section))
    assert settings.store == store
    current = {"store": "type", "path": "path", "database": "database"}
    assert list(settings.deprecations) == [
        f"checkpoint.{key} is deprecated: write store.{current[key]} instead" for key in warned
    ]


def test_where_dead_letters_were_is_ignored() -> None:
    section = {"store": "jsonl", "path": "letters.jsonl", "max_consecutive": 5}
    settings = parse(minimal(delivery={"dead_letters": section}))
    assert settings.delivery.dead_letters.max_consecutive == 5
    assert settings.store == SqliteStoreSettings()
    one, two = settings.deprecations
    assert one.startswith("delivery.dead_letters.store is ignored: dead letters are kept in the st")
    assert two.startswith("delivery.dead_letters.path is ignored")


def test_both_spellings_are_a_contradiction() -> None:
    found = problems(minimal(store={"path": "y"}, checkpoint={"path": "x"}))
    told = "is the older spelling of store.path, and store is given: remove it"
    assert found == {"checkpoint.path": told}


def test_a_collection_of_ones_own_is_refused() -> None:
    """Reading another collection than before would lose its positions."""
    found = problems(minimal(checkpoint={"store": "mongodb", "collection": "positions"}))
    told = "cannot be chosen any more: rename the collection to 'checkpoints'"
    assert found == {"checkpoint.collection": told}
