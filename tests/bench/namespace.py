"""The collection that all benchmarks of the stream read."""

NAMESPACE = "shop.orders"
