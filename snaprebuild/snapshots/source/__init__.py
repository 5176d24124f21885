"""Where a command reads from and writes to, and what the broker's files hold."""
