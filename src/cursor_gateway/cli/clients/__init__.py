"""The clients that `launch` starts and `connect` configures: what each one needs, as values."""
