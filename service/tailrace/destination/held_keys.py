"""The keys of rows whose text is the document key, as Extended JSON."""

import re

from bson.objectid import ObjectId

from tailrace.engine import HeldKey
from tailrace.event.bson import OBJECT_ID, encoded
from tailrace.event.document_key import key_text
from tailrace.event.key import read_key_text
from tailrace.model.snapshot import DocumentId

_OF_OBJECT = re.compile(r'\{"_id":\{"\$oid":"([0-9a-f]{24})"\}\}').fullmatch


def held_key(text: str) -> HeldKey | None:
    """The key with this text; ``None`` if the text does not tell the exact ``_id``."""
    if whole := _OF_OBJECT(text):  # by far the most, without a parser
        value = bytes.fromhex(whole[1])
        return HeldKey(text, DocumentId(encoded(b"%c_id\0%b" % (OBJECT_ID, value))))
    try:
        key, raw = read_key_text(text)
    except ValueError:
        return HeldKey(text, None)
    if key_text(raw) == text:
        return HeldKey(text, DocumentId(raw))
    # Of such a value, a document has no other text.
    is_ours = len(key) > 1 or not isinstance(key["_id"], int | float | str | ObjectId)
    return None if is_ours else HeldKey(text, None)
