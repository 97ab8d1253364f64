"""Repair: dead letters replayed or dropped, documents sent again, the timeline of one. Functions on settings that return values."""
