"""The recording of a run: which tensors are followed, and what was done with them."""
