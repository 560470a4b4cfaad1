"""Where the tables of a pipeline are, and the catalog that names them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

from tailrace.config.fields import Text
from tailrace.masking import MASK, mask_uri

CATALOG_TYPES = ("sql", "rest", "glue")


def _catalog(settings: Mapping[str, str]) -> Mapping[str, str]:
    kind = settings.get("type")
    if settings and kind not in CATALOG_TYPES:
        raise ValueError("needs a type, which is sql, rest or glue")
    if kind in ("sql", "rest") and not settings.get("uri", "").strip():
        raise ValueError(f"needs the uri of the {kind} catalog")
    return settings


def _as_text(value: Any) -> Any:
    """pyiceberg's settings are texts, which YAML reads as numbers and booleans."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _masked(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Without what may be secret."""
    uri = mask_uri(settings.get("uri", ""))
    shown = {name: settings.get(name, "") for name in ("type", "name")} | {"uri": uri}
    return {name: shown.get(name, MASK) for name in settings}


@dataclass(frozen=True, slots=True)
class TablesAt:
    """Where the tables are: Delta tables in a directory, or Iceberg tables of a catalog."""

    where: str
    """The directory, or the warehouse."""

    catalog: Mapping[str, str] | None = field(default=None, repr=False)
    """pyiceberg's settings, for Iceberg tables."""

    namespace: str = "tailrace"


CatalogSettings = Annotated[
    Mapping[str, Annotated[Text, BeforeValidator(_as_text)]],
    AfterValidator(_catalog),
    PlainSerializer(_masked),
]
"""pyiceberg's settings. What may be secret is not printed."""
