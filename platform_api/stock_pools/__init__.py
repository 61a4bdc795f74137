"""Stock pools: how much warm stock of a spec is held."""
