"""How a run is shown to people: document events in, something to look at out."""
