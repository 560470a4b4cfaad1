"""The connection string and the token, as keys and as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.config.files import minimal, parse, problems, settings_of

URI = "mongodb://localhost:27017/"


def test_the_uri_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "uri"
    file.write_text(f"  {URI}\n")
    mongodb = parse(minimal(mongodb={"uri_file": str(file)})).mongodb
    assert mongodb.uri.get_secret_value() == URI
    assert mongodb.uri_file == str(file)


def test_a_uri_file_that_holds_none(tmp_path: Path) -> None:
    file = tmp_path / "uri"
    for content, path, told in [
        (None, "mongodb.uri_file", "no such file"),
        (b"", "mongodb.uri_file", "is empty"),
        (b"\xff", "mongodb.uri_file", "is not UTF-8"),
        (b"hunter2", "mongodb.uri", "must be a connection string"),
    ]:
        if content is not None:
            file.write_bytes(content)
        found = problems(minimal(mongodb={"uri_file": str(file)}))
        assert list(found) == [path]
        assert told in found[path]
        assert "hunter2" not in found[path]


def test_uri_and_uri_file_exclude_each_other() -> None:
    found = problems(minimal(mongodb={"uri": URI, "uri_file": "x"}))
    assert found == {"mongodb.uri_file": "give either uri or uri_file"}


class TestToken:
    TOKEN = "0123456789abcdef"

    def test_comes_from_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text(f"{self.TOKEN}\n")
        http = parse(minimal(http={"token_file": str(file)})).http
        assert http.token is not None
        assert http.token.get_secret_value() == self.TOKEN

    def test_is_one_or_the_other(self) -> None:
        found = problems(minimal(http={"token": self.TOKEN, "token_file": "x"}))
        assert found == {"http.token_file": "give either token or token_file"}

    def test_must_be_readable(self, tmp_path: Path) -> None:
        found = problems(minimal(http={"token_file": str(tmp_path / "none")}))
        assert found == {"http.token_file": f"the file {str(tmp_path / 'none')!r} no such file"}

    @pytest.mark.parametrize("token", ["short", "0123456789 abcdef", "0123456789abcdé", "x" * 513])
    def test_must_be_long_and_fit_into_a_header(self, token: str) -> None:
        (message,) = problems(minimal(http={"token": token})).values()
        assert "openssl rand -hex 32" in message

    def test_that_the_environment_leaves_empty_is_none(self) -> None:
        lines = "http:\n  token: ${TAILRACE_HTTP_TOKEN:-}"
        assert settings_of(lines).http.token is None
        token = settings_of(lines, TAILRACE_HTTP_TOKEN=self.TOKEN).http.token
        assert token is not None
        assert token.get_secret_value() == self.TOKEN

    def test_is_needed_where_everything_is_protected(self) -> None:
        (place,) = problems(minimal(http={"protect": "everything"}))
        assert place == "http.protect"
        parse(minimal(http={"protect": "everything", "token": self.TOKEN}))
