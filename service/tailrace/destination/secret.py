"""A secret as a setting of a handler; see :mod:`tailrace.config.secret`."""

from tailrace.config.secret import (
    SCHEMA,
    Secret,
    SecretText,
    SecretUri,
    masked_secrets,
    plain_texts,
    secret_of,
    with_secrets,
)
from tailrace.masking import MASK, is_secret_name, keep_secret, masked_line

__all__ = [
    "MASK",
    "SCHEMA",
    "Secret",
    "SecretText",
    "SecretUri",
    "is_secret_name",
    "keep_secret",
    "masked_line",
    "masked_secrets",
    "plain_texts",
    "secret_of",
    "with_secrets",
]
