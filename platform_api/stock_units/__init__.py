"""Stock units: so many of them made once, and a look at those that there are."""
