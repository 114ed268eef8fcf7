"""Schedulers: public calls that schedule a fusion of a kind, and say what they did."""
