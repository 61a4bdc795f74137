"""A pod's life on this node: what its containers are in, what is due next, and the worker that does it."""
