"""What all backends of Cursor's agent share."""
