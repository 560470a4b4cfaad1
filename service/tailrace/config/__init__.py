"""The configuration: read once, checked as a whole, frozen.

It imports no driver and no handler: other packages check whether the server answers and whether a
python target can be imported.

``document`` reads YAML with variables, and ``sections`` a file with those that it includes;
``settings`` and the modules that it imports are the models; ``checks`` compares sections;
``messages`` words the problems; ``loading`` runs all of these, and ``served`` reads only what a
command needs to ask a daemon. ``subscriptions`` says how each handler of a scope begins, and how
many streams there may be.
"""
