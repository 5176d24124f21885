"""A simulated metadata quorum over days (KAFKA-14932)."""
