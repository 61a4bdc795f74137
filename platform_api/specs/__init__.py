"""The catalogue, as callers may choose from it."""
