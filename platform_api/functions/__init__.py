"""Functions: code that answers calls, and how its workers are."""
