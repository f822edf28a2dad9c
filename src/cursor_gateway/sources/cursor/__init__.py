"""What every way to Cursor's agent shares."""
