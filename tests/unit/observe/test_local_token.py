"""The token that is made beyond loopback, and the file that it is in."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import structlog

from tailrace.assembly import access_of
from tailrace.config.loading import loads
from tailrace.config.store import (
    AnyStore,
    MemoryStoreSettings,
    MongodbStoreSettings,
    SqliteStoreSettings,
    local_token_file,
)
from tailrace.handlers.types import handler_models
from tailrace.observe import logs
from tailrace.observe.local_token import make_token, read_token

CONFIGURED = "0123456789abcdef-token"


def test_it_is_made_once_for_the_user_of_the_service_only(tmp_path: Path) -> None:
    file = tmp_path / "data" / "tailrace.token"
    with ThreadPoolExecutor(4) as threads:
        (token,) = {*threads.map(make_token, [file] * 16)}
    assert len(token) >= 32
    assert (make_token(file), read_token(file)) == (token, token)
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_it_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes are on the disk before its name, and its name before anybody learns it."""
    file, synced = tmp_path / "tailrace.token", list[str]()
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(read_token(file)))
    token = make_token(file)
    assert synced == ["", token]


@pytest.mark.parametrize("content", [b"", b"short", b"\x00" * 40])
def test_a_file_without_a_token_is_replaced(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "tailrace.token"
    file.write_bytes(content)
    assert read_token(file) == ""
    assert make_token(file) == read_token(file) != ""
    assert file.stat().st_mode & 0o777 == 0o600


def test_where_it_cannot_be_written_the_log_says_what_helps(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, not a directory")
    with structlog.testing.capture_logs() as lines:
        assert make_token(tmp_path / "data" / "tailrace.token") == ""
    assert [line["event"] for line in lines] == ["http.token_not_made"]
    assert "configure http.token" in lines[0]["help"]


def test_the_log_masks_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    token = make_token(tmp_path / "tailrace.token")
    structlog.get_logger().info("it.was_quoted", text=f"it is {token}")
    assert json.loads(capsys.readouterr().err)["text"] == "it is ***"


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        (SqliteStoreSettings(path="/data/shop.db"), "/data/shop.token"),
        (MongodbStoreSettings(type="mongodb"), "data/tailrace.token"),
        (MemoryStoreSettings(type="memory"), "data/tailrace.token"),
    ],
)
def test_the_file_is_beside_the_store(store: AnyStore, expected: str) -> None:
    assert str(local_token_file(store)) == expected


@pytest.mark.parametrize(
    ("http", "loopback", "changes"),
    [
        ("{}", True, "header"),
        ("{host: 0.0.0.0}", False, "token"),
        (f"{{host: 0.0.0.0, token: {CONFIGURED}}}", False, "token"),
    ],
)
def test_one_is_made_only_beyond_loopback_and_where_none_is_configured(
    tmp_path: Path, http: str, loopback: bool, changes: str
) -> None:
    text = (
        "mongodb: {uri: mongodb://localhost}\n"
        "scopes: [{name: a, database: a}]\n"
        "handlers: {log: {type: log}}\n"
        "routes: [{scope: a, handlers: [log]}]\n"
        f"store: {{path: {tmp_path}/tailrace.db}}\n"
        f"http: {http}\n"
    )
    access = access_of(loads(text, handler_models, {}), loopback=loopback)
    made = (tmp_path / "tailrace.token").exists()
    assert (access.changes, made) == (changes, changes == "token" and CONFIGURED not in http)
