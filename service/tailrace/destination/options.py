"""Checks the options of a handler class against its constructor.

No message shows a value: options hold passwords.
"""

import inspect
from collections.abc import Mapping
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from tailrace.config.messages import did_you_mean, path_of
from tailrace.errors import ConfigurationError, Problem

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def arguments(name: str, kind: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the constructor ``kind`` for handler ``name``, by its annotations.

    A constructor with one parameter that is annotated with a pydantic model gets all options as
    that model. Raises :class:`ConfigurationError` with the path of each wrong option.
    """
    parameters = list(inspect.signature(kind).parameters.values())
    hints = _hints(kind)
    only = hints.get(parameters[0].name) if len(parameters) == 1 else None
    if isinstance(only, type) and issubclass(only, BaseModel):
        return {parameters[0].name: _validated(name, kind, only, options)}
    config = ConfigDict(
        arbitrary_types_allowed=True,
        coerce_numbers_to_str=True,
        extra="forbid" if all(p.kind is not p.VAR_KEYWORD for p in parameters) else "allow",
    )
    named = [p for p in parameters if p.kind in _NAMED]
    # Numbered, because pydantic reserves some names, such as those that begin with "_".
    fields: dict[str, Any] = {
        f"option{at}": (hints.get(p.name, Any), _field(p)) for at, p in enumerate(named)
    }
    checked = _validated(name, kind, _model(kind, config, fields), options)
    values = {p.name: getattr(checked, f"option{at}") for at, p in enumerate(named)}
    values |= checked.model_extra or {}
    return {option: values[option] for option in options}


def _model(kind: type, config: ConfigDict, fields: dict[str, Any]) -> type[BaseModel]:
    try:
        return create_model(kind.__name__, __config__=config, **fields)
    except PydanticUserError:  # an annotation that pydantic cannot check
        fields = {field: (Any, default) for field, (_, default) in fields.items()}
        return create_model(kind.__name__, __config__=config, **fields)


def _hints(kind: type) -> dict[str, Any]:
    """The annotations of the constructor; those of a dataclass are its fields'."""
    found: dict[str, Any] = {}
    for of in (kind, kind.__init__):  # type: ignore[misc]
        try:
            found |= get_type_hints(of)
        except Exception:  # noqa: BLE001, S112 - names that exist only for type checkers
            continue
    return found


def _field(parameter: inspect.Parameter) -> Any:
    default = ... if parameter.default is parameter.empty else parameter.default
    return Field(default, alias=parameter.name)


def _validated(
    name: str, kind: type, model: type[BaseModel], options: Mapping[str, Any]
) -> BaseModel:
    try:
        return model.model_validate(options)
    except ValidationError as error:
        known = [field.alias or key for key, field in model.model_fields.items()]
        raise ConfigurationError(
            *(
                Problem(
                    path_of(("handlers", name, "options", *detail["loc"])),
                    _message(kind.__name__, detail["type"], detail["msg"], detail["loc"], known),
                )
                for detail in error.errors(include_url=False, include_input=False)
            )
        ) from None


def _message(
    kind: str, error: str, said: str, location: tuple[int | str, ...], known: list[str]
) -> str:
    if error == "missing":
        return f"is required by {kind}"
    if error == "extra_forbidden":
        close = did_you_mean(location[-1], known)
        takes = f"; it takes {', '.join(known)}" if known else "; it takes none"
        return f"is not an option of {kind}{close or takes}"
    return f"does not fit {kind}: {said[:1].lower()}{said[1:]}"
