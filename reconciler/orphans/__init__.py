"""Orphans: claims that nobody will ever use, and objects of ours without a living unit."""
