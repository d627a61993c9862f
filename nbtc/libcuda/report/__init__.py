"""What a process' launches found, kept while it runs and written for other tools."""
