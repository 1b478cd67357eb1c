"""Planners: (tables, access, cluster, precision, workload) -> ShardingPlan. Pure functions, one file a planner."""
