"""Linear maps under one rule, and the ways in which a rule writes them."""
