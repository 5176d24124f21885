"""Producer snapshots of log directories: scan, plan, rebuild, verify, stage, install, undo."""
