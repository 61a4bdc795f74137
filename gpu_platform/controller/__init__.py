"""What every daemon is made of: work queue, control loop, leader election, probes, metrics."""
