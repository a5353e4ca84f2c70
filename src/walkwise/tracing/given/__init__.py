"""What the caller gave: the arguments as a model takes them, and the number to explain."""
