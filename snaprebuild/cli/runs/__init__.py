"""What each verb does with its options. A module is loaded when its verb runs, not for its help."""
