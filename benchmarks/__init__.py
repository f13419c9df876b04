"""Speed as ratios: against peers and against the physical limit, measured in the same run."""
