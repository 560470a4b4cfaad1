"""What a watcher is doing: its state and lags, for people and for Prometheus."""
