"""Health: what the platform has, what it lacks, and whether it can be used."""
