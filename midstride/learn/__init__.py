"""Everything that learns."""
