"""Volumes out of directories of this machine: a storage class for the embedded cluster, and what serves it."""
