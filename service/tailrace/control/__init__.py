"""What an operator asks of a running service: the actions, their refusal, and one table of routes.

:class:`~tailrace.control.control.Control` has the actions. :data:`~tailrace.control.routes.ROUTES`
is the HTTP API: requests are dispatched by it, and its OpenAPI document and docs/http.md are made
from it. :mod:`tailrace.control.client` is the command line's side.
"""

from tailrace.control.api import Api, Health
from tailrace.control.control import Control
from tailrace.control.outcome import ActionRefused, Done

__all__ = ["ActionRefused", "Api", "Control", "Done", "Health"]
