"""The only code that changes the state: one module per noun. It never refuses."""
