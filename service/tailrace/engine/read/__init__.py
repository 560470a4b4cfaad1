"""Reads batches from a stream and gives each chunk a place on the watermark."""
