"""Jobs: what operators asked for, and how far it came. The ledger is their only memory."""
