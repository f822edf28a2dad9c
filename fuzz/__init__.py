"""Any bytes in; proof that no stage breaks a law on them out. `python -m fuzz` looks for bytes that do."""
