"""Commands become events, or are refused: one module per noun. Nothing here changes the state."""
