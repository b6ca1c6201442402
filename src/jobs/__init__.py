"""Your job types, one module each."""
