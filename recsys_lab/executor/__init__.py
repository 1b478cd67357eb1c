"""What all schemes share when they run: a model and a plan become a model that trains on the current process group (`shard`)."""
