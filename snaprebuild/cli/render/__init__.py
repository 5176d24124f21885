"""Results as tables and JSON documents."""
