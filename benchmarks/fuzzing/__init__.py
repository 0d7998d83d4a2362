"""Mutations of the files that inferlab reads, deterministic by seed."""
