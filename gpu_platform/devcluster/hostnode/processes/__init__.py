"""Local processes: starting them, ending them for certain, and asking them how they are. Knows no Pod objects."""
