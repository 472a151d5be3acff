"""The rules: pure functions from records and the time to new records, which a store writes."""
