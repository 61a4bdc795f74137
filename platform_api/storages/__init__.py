"""Storages: volumes that outlive the units which mount them."""
