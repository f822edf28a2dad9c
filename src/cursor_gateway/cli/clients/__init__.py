"""The clients that `launch` starts and `connect` configures, as values."""
