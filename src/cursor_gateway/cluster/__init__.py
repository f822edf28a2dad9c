"""Several gateways on one database: fronts, which serve clients, and runners, which run agents."""
