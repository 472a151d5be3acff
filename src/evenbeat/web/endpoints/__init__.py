"""The endpoints of the API, one module per subject. Importing them fills the table."""
