"""What an operator asks of a running service.

An action is a module of :mod:`tailrace.control.actions` and a row of
:data:`tailrace.control.action_table.TABLE`: requests are dispatched by it, and the OpenAPI
document, docs/http.md and the options of the shell are made from its request.
:class:`~tailrace.control.control.Control` is what actions work with, and
:mod:`tailrace.control.client` the command line's side.
"""
