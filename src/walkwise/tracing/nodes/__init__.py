"""Which node every row of a tensor is, and where walks stand."""
