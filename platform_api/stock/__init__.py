"""Stock pools, stock units, the catalogue, and the jobs that make them."""
