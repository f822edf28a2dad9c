"""A whole cluster on this machine: `make cluster` starts one, and the tests use the same parts."""
