"""The client of a REST catalog, with a time limit: pyiceberg waits for an answer for ever."""

from functools import partial

from pyiceberg.catalog.rest import RestCatalog
from requests import Session

SECONDS = (10.0, 60.0)
"""For a connection, and for each answer."""


class TimedRestCatalog(RestCatalog):
    """A REST catalog whose requests end."""

    def _config_headers(self, session: Session) -> None:
        # The first method that has the session: it asks for a token before it is complete.
        super()._config_headers(session)
        session.request = partial(session.request, timeout=SECONDS)  # type: ignore[method-assign]
