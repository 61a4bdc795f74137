"""The daemon that makes the cluster match what was asked for: observe, plan, apply, again and again."""
