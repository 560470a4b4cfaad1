"""Reads batches from a stream and gives each slice a place on the watermark."""
