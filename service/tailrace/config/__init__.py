"""The configuration: read once, checked as a whole, frozen.

It imports no driver and no handler: other packages check whether the server answers and whether a
python target can be imported.

``document`` reads YAML with variables; ``settings`` and the modules that it imports are the models;
``checks`` compares sections; ``messages`` words the problems; ``loading`` runs all of these.
``subscriptions`` says how each handler of a scope begins, and how many streams there may be.
"""

from tailrace.config.loading import load, load_pipeline, load_served, loads, located, masked
from tailrace.config.settings import Settings, model_of, schema

__all__ = [
    "Settings",
    "load",
    "load_pipeline",
    "load_served",
    "loads",
    "located",
    "masked",
    "model_of",
    "schema",
]
