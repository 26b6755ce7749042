"""Programs that show what the project is for. None of them is installed."""
