from fairlane.cli import app

app()
