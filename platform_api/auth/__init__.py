"""Who calls: API keys, roles, and the rate of each key."""
