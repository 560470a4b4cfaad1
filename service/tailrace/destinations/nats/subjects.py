"""Subjects of NATS: how names become tokens, and which subjects a stream takes.

Source: https://docs.nats.io/nats-concepts/subjects
"""

from collections.abc import Iterable
from urllib.parse import quote

from tailrace.destination import Template
from tailrace.model import Scope

ANY = "*"
"""A token that stands for every token in its place."""


def token(name: str) -> str:
    """The token of a name. Different names have different tokens.

    All but ASCII letters, digits, ``_``, ``-`` and ``~`` are percent-encoded as UTF-8: a dot would
    divide the token, ``*`` and ``>`` are wildcards.
    """
    return quote(name, safe="").replace(".", "%2E")


def subject_of(template: Template, database: str, collection: str, scope: str) -> str:
    """The subject of messages about a collection."""
    return template.name(token(database), token(collection), scope=token(scope))


def subjects_of(template: Template, scope: Scope) -> str:
    """The subjects of all messages of a scope, with :data:`ANY` for what it does not fix.

    That is a whole token, even if the template has more text in it. A scope without a name: any.
    """
    mark = "\0"
    text = template.name(
        token(scope.database) if scope.database is not None else mark,
        token(scope.collection) if scope.collection is not None else mark,
        scope=token(scope.name) if scope.name else mark,
    )
    return ".".join(ANY if mark in each else each for each in text.split("."))


def takes(subjects: Iterable[str], subject: str) -> bool:
    """Whether every subject that ``subject`` stands for matches one of ``subjects``."""
    return any(_covers(each.split("."), subject.split(".")) for each in subjects)


def _covers(pattern: list[str], subject: list[str]) -> bool:
    for at, part in enumerate(pattern):
        if part == ">":
            return len(subject) > at
        if at >= len(subject) or (part != subject[at] and part != ANY):
            return False
    return len(pattern) == len(subject)
