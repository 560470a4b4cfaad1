"""What a peer's file becomes: the sections of our configuration, and its text with comments."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from io import StringIO
from typing import Any

from tailrace.config.loading import loads
from tailrace.config.lookup_stages import refusal
from tailrace.config.settings import Settings
from tailrace.errors import ConfigurationError
from tailrace.handlers.types import handler_models
from tailrace.migrate.namespaces import Selection
from tailrace.migrate.options import Lost, PeerOptions

_BAD_IN_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_PATH = re.compile(r"(?!_id(\.|\Z))[^.$][^.]*(\.[^.$][^.]*)*\Z")


@dataclass(frozen=True, slots=True)
class FieldRule:
    """Leaves out a field of the collections that a pattern names, or renames it."""

    option: str
    namespace: str
    path: str
    name: str = ""


@dataclass(slots=True)
class Conversion:
    """The parts of our configuration, as far as a peer's file has them.

    ``offsets_name`` and ``key``: what it is called in its offsets, if known. ``login``: variables
    that the written file has in the place of secrets, and of what the peer's file lacks, with their
    values.
    """

    peer: str
    options: PeerOptions
    name: str
    offsets_name: str = ""
    key: Mapping[str, str] = field(default_factory=dict)
    uri: str = ""
    login: dict[str, str] = field(default_factory=dict)
    selection: Selection = field(default_factory=Selection)
    database: str = ""
    collection: str = ""
    pipeline: list[dict[str, Any]] = field(default_factory=list)
    stages_first: bool = False
    scope: dict[str, Any] = field(default_factory=dict)
    snapshot: dict[str, Any] = field(default_factory=dict)
    handler: dict[str, Any] = field(default_factory=dict)
    rules: list[FieldRule] = field(default_factory=list)
    topics: dict[str, str] = field(default_factory=dict)
    delivery: dict[str, Any] = field(default_factory=dict)

    @property
    def lost(self) -> list[Lost]:
        """What is not carried over."""
        return self.options.lost

    def configuration(self, token: Mapping[str, Any] | None) -> dict[str, Any]:
        """The sections of the file. ``token``: where the scope starts."""
        scope: dict[str, Any] = {"name": self.scope_name, **self._target(token)}
        ends = "database" in scope
        own, selected = self.pipeline, self.selection.stages(ends=ends)
        if stages := own + selected if self.stages_first else selected + own:
            scope["pipeline"] = stages
        scope |= self.scope
        if scope.get("full_document") == "lookup" and any(map(refusal, stages)):
            scope["full_document"] = "updateLookup"
        namespaces = self.selection.namespaces()
        everything = namespaces is None and not self.selection.is_everything
        if token is not None:
            scope.pop("start_at", None)
            scope["resume_after"] = dict(token)
        elif self.snapshot and everything:
            self._lose(
                "snapshot.mode",
                "the rows of a snapshot do not pass a scope's pipeline, so those of collections "
                "that the stream leaves out would come: name the collections in routes[0]."
                "namespaces, and then set snapshot: initial",
            )
        elif self.snapshot:
            only_mode = self.snapshot == {"mode": "initial"}
            scope["snapshot"] = "initial" if only_mode else dict(self.snapshot)
        handlers, routes = self._deliveries(namespaces)
        sections = {"mongodb": {"uri": self.uri}, "delivery": self.delivery, "scopes": [scope]}
        sections |= {"handlers": handlers, "routes": routes}
        return {name: section for name, section in sections.items() if section}

    @property
    def scope_name(self) -> str:
        """The peer's name, as a scope may have it."""
        return _BAD_IN_NAME.sub("-", self.name).strip("-._")[:100] or "migrated"

    @property
    def stand_in(self) -> dict[str, Any]:
        """A handler where the peer has a destination that we have not."""
        return {"type": "jsonl", "path": f"data/{self.scope_name}-{{handler}}.jsonl"}

    def _target(self, token: Mapping[str, Any] | None) -> dict[str, str]:
        """What the scope follows. A token belongs to what the peer follows; without one, a scope
        may be narrower, and its snapshot lists fewer collections."""
        database, collection = self.database, self.collection
        names = self.selection.exact() if not token and not database else None
        parts = [name.partition(".") for name in names or ()]
        if parts and len({part[0] for part in parts}) == 1:
            database, collection = parts[0][0], parts[0][2] if len(parts) == 1 else ""
        return {
            key: value
            for key, value in (("database", database), ("collection", collection))
            if value
        }

    def _deliveries(
        self, namespaces: list[str] | None
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Handlers and routes. Collections with other field rules get a handler of their own."""
        kind = str(self.handler.get("type", ""))
        single = [f"{self.database}.{self.collection}"] if self.collection else None
        exact = self.selection.exact() or single
        groups: dict[tuple[FieldRule | str, ...], list[str]] = {}
        everywhere = [rule for rule in self.rules if rule.namespace == "*.*"]
        if exact is None or (len(everywhere) == len(self.rules) and not self.topics):
            groups[tuple(self._for_all(exact))] = namespaces or []
        for namespace in exact or () if not groups else ():
            rules = [r for r in self.rules if re.match(translate(r.namespace), namespace)]
            topic = self.topics.get(namespace, "")
            groups.setdefault((*rules, topic), []).append(namespace)
        handlers, routes = {}, []
        for number, (rules_and_topic, names) in enumerate(groups.items()):
            name = kind if number == 0 else f"{kind}-{number + 1}"
            handler = {
                key: value.replace("{handler}", name) if key == "path" else value
                for key, value in self.handler.items()
            }
            fields = self._fields([r for r in rules_and_topic if isinstance(r, FieldRule)])
            for part in rules_and_topic:
                if isinstance(part, str) and part:
                    handler["topic"] = part
                    handler.pop("prefix", None)
            handlers[name] = handler | ({"fields": fields} if fields else {})
            chosen = {"namespaces": names} if names and names != single else {}
            routes.append({"scope": self.scope_name, **chosen, "handlers": [name]})
        return handlers, routes

    def _for_all(self, exact: Sequence[str] | None) -> list[FieldRule]:
        """The rules of a handler of all collections."""
        rules = []
        for rule in self.rules:
            if rule.namespace != "*.*" and exact is None and rule.name:
                self._lose(
                    rule.option,
                    f"{rule.namespace}.{rule.path} is not renamed, because the collections are "
                    "selected by patterns: add a handler with this rule, and a route to it",
                )
                continue
            if rule.namespace != "*.*" and exact is None:
                self._lose(
                    rule.option,
                    f"{rule.path} is left out of all collections, not only of {rule.namespace}, "
                    "because the collections are selected by patterns",
                )
            rules.append(rule)
        for namespace, topic in self.topics.items() if exact is None else ():
            self._lose(
                "topic.namespace.map",
                f"{namespace} has no topic {topic} of its own, because the scope does not name "
                "its collections: add a handler with this topic, and a route to it",
            )
        return rules

    def _fields(self, rules: Sequence[FieldRule]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for rule in rules:
            if not _PATH.match(rule.path):
                self._lose(rule.option, f"{rule.path} stays as it is: _id cannot be changed")
            elif not rule.name:
                fields.setdefault("leave_out", []).append(rule.path)
            elif "." in rule.name or rule.name in ("", "_id") or rule.name.startswith("$"):
                self._lose(rule.option, f"{rule.name!r} cannot be the new name of {rule.path}")
            else:
                fields.setdefault("rename", {})[rule.path] = rule.name
        return fields

    def _lose(self, option: str, why: str) -> None:
        if all(lost.why != why for lost in self.lost):
            self.options.lose(option, why)


def text_of(conversion: Conversion, config: Mapping[str, Any], source: str) -> str:
    """The file to write: what is not carried over, as comments, and the sections."""
    from ruamel.yaml import YAML

    head = [f"Made by 'tailrace migrate --from {conversion.peer}' from {source}."]
    for name in conversion.login:
        head.append(f"Set the environment variable {name}.")
    if conversion.lost:
        head += ["Not carried over, or different:", *(f"- {lost}" for lost in conversion.lost)]
    lines = [
        line
        for text in head
        for line in textwrap.wrap(
            " ".join(text.split()),
            98,
            subsequent_indent="  " if text.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]
    yaml, text = YAML(), StringIO()
    yaml.width = 1000
    yaml.dump(dict(config), text)
    return "".join(f"# {line}\n" for line in lines) + "\n" + text.getvalue()


class _Environment(dict[str, str]):
    """The environment; what it lacks is text that may stand for a value."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return "unset"

    def get(self, name: str, default: Any = None) -> Any:
        return self[name]


def settings_of(
    conversion: Conversion, text: str, source: str, environ: Mapping[str, str]
) -> Settings:
    """The settings of the written file; what its variables lack is left open.

    Raises :class:`ConfigurationError`, in terms of the peer's file, if it has a value that no
    configuration of ours may have.
    """
    known = _Environment(conversion.login | dict(environ))
    try:
        return loads(text, handler_models, known)
    except ConfigurationError as error:
        problem = error.problems[0]
        message = f"cannot be carried over: {problem.path}: {problem.message}"
        raise ConfigurationError(type(problem)(source, message)) from None
