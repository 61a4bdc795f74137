"""The Automation API side: one stack per unit, storage, function and pool."""
