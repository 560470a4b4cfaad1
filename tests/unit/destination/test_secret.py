"""Secrets as settings, and names made of a namespace."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tailrace.config.fields import Section
from tailrace.destination.names import NameTemplate
from tailrace.destination.secret import SecretText, SecretUri
from tailrace.errors import Unavailable
from tailrace.masking import without_secrets


class Given(Section):
    secret: SecretText | None = None
    uri: SecretUri | None = None
    name: NameTemplate | None = None


def test_a_secret_in_a_file_is_read_again_at_each_use_and_masked(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first-password\n")
    secret = Given(secret={"file": str(file)}).secret  # type: ignore[arg-type]
    assert secret is not None
    assert secret.read() == "first-password"
    file.write_text("second-password\n")
    assert secret.read() == "second-password"
    assert without_secrets("refused second-password") == "refused ***"
    for content in ("", None):
        file.unlink() if content is None else file.write_text(content)
        with pytest.raises(Unavailable, match="password"):
            secret.read()


def test_secrets_are_shown_without_what_is_secret() -> None:
    given = Given(secret="a-long-secret", uri="postgresql://me:hidden-one@host/db?sslmode=require")  # type: ignore[arg-type]
    assert json.loads(given.model_dump_json(exclude_none=True)) == {
        "secret": "***",
        "uri": "postgresql://me:***@host/db?sslmode=require",
    }
    assert "a-long-secret" not in repr(given)
    assert without_secrets("hidden-one of postgresql://me") == "*** of postgresql://me"


@pytest.mark.parametrize("secret", ["", {}, {"file": ""}, {"file": "a", "more": 1}, 7, ["a"]])
def test_a_secret_is_a_text_or_a_file(secret: Any) -> None:
    with pytest.raises(ValidationError, match="must be a text"):
        Given(secret=secret)


def test_a_secret_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="cannot be read"):
        Given(secret={"file": str(tmp_path / "nothing")})  # type: ignore[arg-type]


def test_a_name_is_made_of_the_namespace() -> None:
    name = Given(name="{prefix}.{database}.{collection}").name  # type: ignore[arg-type]
    assert name is not None
    assert name.name("shop", "a.b", prefix="app") == "app.shop.a.b"


@pytest.mark.parametrize("name", ["{topic}", "{", "{0}", "{database!r}", "{database:>9}", "{}"])
def test_a_name_has_no_other_placeholders(name: str) -> None:
    with pytest.raises(ValidationError, match=r"may hold \{database\}"):
        Given(name=name)  # type: ignore[arg-type]
