"""Why an event lacks an image."""

from enum import Enum


class Image(Enum):
    """Whether an image is a document, and why not: the difference matters, and null is no error."""

    ABSENT = "absent"
    """The field is missing (the scope did not ask for it), or it holds no document."""
    NULL = "null"
    """The server looked and found no document: deleted since, or no image was kept."""
    PRESENT = "present"
