"""What a chain is made of, and the one loop that contracts it."""
