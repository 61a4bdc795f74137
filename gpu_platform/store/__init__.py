"""The guarded writes that API, provider and reconciler share: ledger, claims, units, mount holds, stack leases."""
