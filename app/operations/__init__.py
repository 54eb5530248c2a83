"""What operators see: metrics, health, log lines."""
