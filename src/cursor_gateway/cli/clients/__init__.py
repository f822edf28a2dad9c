"""What each client needs to use a gateway, as values; and how their files are changed."""
