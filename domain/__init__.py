"""What a response is and how it may change. Pure: time, ids and randomness come in as arguments."""
