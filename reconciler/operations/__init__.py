"""Operations: what a dead process left is finished or undone, jobs are done, and old records are forgotten."""
