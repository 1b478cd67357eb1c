"""What all schemes share when they run. `shard` turns a model and a plan into a model that trains on the current process group."""
