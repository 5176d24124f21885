"""Carries out a plan: replays and writes snapshots."""
