"""The rules: pure functions from records and the time to new records. A store applies what they say."""
