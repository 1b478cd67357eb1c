"""Which sharding, precision, optimizer and cluster to pay for: every combination planned and simulated."""
