"""Where a scope stands: where a run starts, how far it is handled, what is saved."""
