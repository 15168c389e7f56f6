"""`fairlane top`: the dashboard's frames in a terminal."""
