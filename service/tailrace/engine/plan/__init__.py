"""How a scope is followed, and what all scopes of a process share."""
