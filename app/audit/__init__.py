"""Looking into the log afterwards: finding turns, seeing one whole, reading a conversation, comparing two."""
