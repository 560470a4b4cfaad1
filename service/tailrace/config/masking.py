"""The configuration for eyes: all of it, but no secret."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from pydantic import BaseModel, SecretStr

from tailrace.config.settings import Settings
from tailrace.masking import mask_uri


def masked(settings: Settings) -> dict[str, Any]:
    """The effective configuration as plain data, in the order of the file, without secrets.

    Keys that are left to the server are left out.
    """
    return _section(settings)


def _section(section: BaseModel) -> dict[str, Any]:
    values = {
        info.alias or name: getattr(section, name)
        for name, info in type(section).model_fields.items()
    }
    return {key: _plain(value) for key, value in values.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _section(value)
    if isinstance(value, SecretStr):
        return mask_uri(value.get_secret_value())
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, date) else value
