"""What is shown of events, versions and libraries, for the terminal, JSON and pages."""
