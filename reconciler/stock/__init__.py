"""StockPools: as much warm stock as they ask for, never at the cost of what is claimed."""
