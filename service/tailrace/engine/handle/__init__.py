"""Hands places of the watermark to the handlers: lanes, delivery, retries, time limits."""
