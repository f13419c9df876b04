"""The paper's theory, executable: tabular and continuous-time concurrent MDPs, exactly."""
