"""What auditors ask of a log, as rules over its events."""
