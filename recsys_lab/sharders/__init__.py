"""Planners that users choose: each a frozen dataclass of its options that plans, adapts a plan and says why (`base.Sharder`)."""
