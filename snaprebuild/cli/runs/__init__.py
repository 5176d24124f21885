"""The work of each verb. A module is loaded when its verb runs, not for its help."""
