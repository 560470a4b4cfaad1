"""The lake: what the daemon lands and the pipeline reads, as files that both understand."""
