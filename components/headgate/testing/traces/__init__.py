"""Simulation of whole clusters on recorded traces, under a virtual clock."""
