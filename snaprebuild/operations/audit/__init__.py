"""What ``tier_audit`` is made of: the values it tells, the copies of one partition put together, and what judges their snapshots."""
