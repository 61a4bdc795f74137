"""The inventory: nodes, their GPUs, and who has them."""
