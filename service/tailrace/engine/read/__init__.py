"""From a stream to the watermark: reads batches and gives each a place."""
