"""Stacks: what Pulumi has recorded of units and pools, and what it would change."""
