"""Put a gateway together, or find one: who makes and closes what."""
