"""How a run is said to others: document events in, bytes of a foreign protocol out. No dialect knows another."""
