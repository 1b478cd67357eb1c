"""What `python -m recsys_lab doctor` looks at: what is installed, what works on this machine, and what to do about what does not."""
