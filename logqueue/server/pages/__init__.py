"""Pages for people: what is served outside the API, as a Starlette application."""
