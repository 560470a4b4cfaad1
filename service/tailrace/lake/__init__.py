"""The lake: the format of the files that the daemon writes and the pipeline reads."""
