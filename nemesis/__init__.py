"""Faults in a cluster, chosen by a seed; a history of what readers, agents and the database saw; and its laws."""
