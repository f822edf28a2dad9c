"""The data model that every layer shares: closed unions and plain values."""
