"""The APIs of a gateway: each encodes document events in its own protocol, and knows no other."""
