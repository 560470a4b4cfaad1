"""The values of typed columns, as SQL over the canonical text of documents."""

from collections.abc import Callable, Mapping

_EXACT_DECIMAL = (
    "IF(instr({text}, 'E') = 0 AND (instr({text}, '.') = 0 OR "
    "length({text}) - instr({text}, '.') <= 10), true, {text} LIKE '%E+%' OR "
    r"length(rtrim('0', regexp_extract({text}, r'\.([0-9]*)', 1))) "
    r"+ coalesce(try_cast(regexp_extract({text}, r'E-([0-9]+)$', 1) AS INT), 0) <= 10)"
)
"""Whether ten digits after the point are enough: MongoDB writes E+ only for whole numbers. Usual
numbers need no pattern, which would cost as much as to parse the document."""

FIRST_YEAR, LAST_YEAR = -62_135_596_800_000, 253_402_300_799_999
"""The range of TIMESTAMP in SQL, the years 1 to 9999, in milliseconds."""


FORMS: Mapping[str, str] = {
    "string": "variant",
    "boolean": "variant",
    "long": "struct<`$numberInt`: string, `$numberLong`: string>",
    "double": "struct<`$numberDouble`: string, `$numberInt`: string, `$numberLong`: string>",
    "timestamp": "struct<`$date`: struct<`$numberLong`: string>>",
    "decimal": "struct<`$numberDecimal`: string>",
    "objectId": "struct<`$oid`: string>",
    "json": "variant",
    "rescued": "variant",
}
"""A canonical value as a type of Spark. All else becomes null there, but in a variant. That is
written as JSON, because any value would be cast to a string."""


def _string(json: str) -> str:
    """Only text with an escape is parsed. (To cast a variant, Spark makes an expression a row.)"""
    text = (
        f"IF(instr({json}, char(92)) = 0, btrim({json}, '\"'), CAST(parse_json({json}) AS STRING))"
    )
    return f"IF(startswith({json}, '\"'), {text}, NULL)"


def _boolean(json: str) -> str:
    return f"CASE {json} WHEN 'true' THEN true WHEN 'false' THEN false END"


def _long(found: str) -> str:
    texts = (f"{found}.`{name}`" for name in ("$numberInt", "$numberLong"))
    return f"coalesce({', '.join(f'try_cast({text} AS BIGINT)' for text in texts)})"


def _double(found: str) -> str:
    """Any double, and integers that a double holds exactly."""
    whole = f"try_cast({found}.`$numberLong` AS BIGINT)"
    number = f"CAST({whole} AS DOUBLE)"
    # A cast of 2 ** 63 gives the largest long, which would then seem equal.
    exact = f"{number} < 9223372036854775808D AND CAST({number} AS BIGINT) = {whole}"
    return (
        f"coalesce(try_cast({found}.`$numberDouble` AS DOUBLE), "
        f"try_cast({found}.`$numberInt` AS DOUBLE), IF({exact}, {number}, NULL))"
    )


def _timestamp(found: str) -> str:
    milliseconds = f"try_cast({found}.`$date`.`$numberLong` AS BIGINT)"
    fits = f"{milliseconds} BETWEEN {FIRST_YEAR} AND {LAST_YEAR}"
    return f"IF({fits}, timestamp_millis({milliseconds}), NULL)"


def _decimal(found: str) -> str:
    text = f"{found}.`$numberDecimal`"
    fits = _EXACT_DECIMAL.format(text=text)
    return f"IF({fits}, try_cast({text} AS DECIMAL(38, 10)), NULL)"


def _object_id(found: str) -> str:
    return f"IF(length({found}.`$oid`) = 24, {found}.`$oid`, NULL)"


def _json(json: str) -> str:
    """Arrays and documents. A document whose first name has a ``$`` is a value of another type."""
    document = f"startswith({json}, '{{') AND NOT startswith({json}, '{{\"$')"
    return f"IF(startswith({json}, '[') OR ({document}), {json}, NULL)"


VALUES: Mapping[str, Callable[[str], str]] = {
    "string": _string,
    "long": _long,
    "double": _double,
    "boolean": _boolean,
    "timestamp": _timestamp,
    "decimal": _decimal,
    "objectId": _object_id,
    "json": _json,
    "rescued": lambda _: "CAST(NULL AS STRING)",
}
"""SQL for the value of a column from what :data:`FORMS` gives (a variant as JSON); null if it does
not fit."""
