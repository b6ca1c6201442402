"""Wrong jobs and wrong consumers as teams write them, and right ones: what the test kit must fail, and must pass."""
