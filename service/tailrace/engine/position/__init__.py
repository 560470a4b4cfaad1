"""The positions of a scope: where a run starts, how far changes are handled, what is saved."""
