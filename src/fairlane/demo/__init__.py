"""The demo: simulated services and traffic over real HTTP. Tests use the services, too."""
