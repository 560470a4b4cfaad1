"""From the watermark to the handlers and back: lanes, delivery, retries, time limits."""
