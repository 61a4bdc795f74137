"""The words and the rules of the product: values and pure functions only."""
