"""What ``fleet merge`` is made of: scans of many brokers as replicas, the smallest set of brokers to treat, the order of restarts."""
