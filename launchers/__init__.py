"""How processes start. No tuning here: that is the cluster's YAML."""
