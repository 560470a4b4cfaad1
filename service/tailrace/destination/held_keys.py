"""The keys of rows whose text is the document key, as Extended JSON."""

from bson.objectid import ObjectId

from tailrace.engine import HeldKey
from tailrace.event.document_key import key_text
from tailrace.event.key import read_key_text
from tailrace.model.snapshot import DocumentId


def held_key(text: str) -> HeldKey | None:
    """The key with this text; ``None`` if the text does not tell the exact ``_id``."""
    try:
        key, raw = read_key_text(text)
    except ValueError:
        return HeldKey(text, None)
    if key_text(raw) == text:
        return HeldKey(text, DocumentId(raw))
    # Of such a value, a document has no other text.
    is_ours = len(key) > 1 or not isinstance(key["_id"], int | float | str | ObjectId)
    return None if is_ours else HeldKey(text, None)
