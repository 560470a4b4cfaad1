"""A secret as a setting: the text itself, or ``{file: PATH}``, which is read at each use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from tailrace.config.interpolation import Unresolved
from tailrace.errors import Unavailable
from tailrace.masking import MASK, keep_secret, mask_uri, secrets_of


@dataclass(frozen=True, slots=True)
class Secret:
    """A text that is masked in all output. With ``file``, it is what that file holds now."""

    text: str = field(default="", repr=False)
    file: str | None = None

    def read(self) -> str:
        """The secret as it is now. Blocks for a moment.

        Raises :class:`Unavailable` if its file cannot be read or is empty, as while a mounted
        secret is replaced.
        """
        if self.file is None:
            return self.text
        try:
            text = Path(self.file).read_text().strip()
        except (OSError, ValueError) as error:
            raise Unavailable(f"the secret file {self.file!r} cannot be read: {error}") from error
        if not text:
            raise Unavailable(f"the secret file {self.file!r} is empty")
        _mask(text)
        return text


def secret_of(value: Any) -> Secret:
    """The secret that a value of the file gives. Raises ``ValueError``."""
    if isinstance(value, dict):
        file = value.get("file")
        if set(value) != {"file"} or not isinstance(file, str) or not file:
            raise ValueError("must be a text, or {file: PATH} with the file that holds it")
        secret = Secret(file=str(file))
        try:
            secret.read()
        except Unavailable as error:
            raise ValueError(str(error)) from None
        return secret
    if isinstance(value, Unresolved) or not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text that is not empty, or {file: PATH}")
    _mask(str(value))
    return Secret(str(value))


def with_secrets(given: dict[str, Any]) -> dict[str, Any]:
    """A mapping whose values of the form ``{file: PATH}`` are secrets. Raises ``ValueError``."""
    return {
        key: secret_of(value) if isinstance(value, dict) and set(value) == {"file"} else value
        for key, value in given.items()
    }


def plain_texts(given: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with its secrets as the texts that they are now. Raises :class:`Unavailable`."""
    return {k: v.read() if isinstance(v, Secret) else v for k, v in given.items()}


def _mask(text: str) -> None:
    """Masks it from now on: of a URL only what is secret, because other URLs begin like it."""
    keep_secret(*(secrets_of(text) if "://" in text else [text]))


def _masked(given: Secret) -> Any:
    return {"file": given.file} if given.file else MASK


def _masked_uri(given: Secret) -> Any:
    return {"file": given.file} if given.file else mask_uri(given.text)


def masked_secrets(given: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with its secrets as they are shown."""
    return {k: _masked(v) if isinstance(v, Secret) else v for k, v in given.items()}


SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"file": {"type": "string"}},
            "required": ["file"],
            "additionalProperties": False,
        },
    ]
}
"""The JSON schema of a secret."""

_Read, _Schema = PlainValidator(secret_of), WithJsonSchema(SCHEMA)
SecretText = Annotated[Secret, _Read, PlainSerializer(_masked), _Schema]
SecretUri = Annotated[Secret, _Read, PlainSerializer(_masked_uri), _Schema]
"""A URL or connection string, which is shown without its secrets."""
