"""The chaos suite: a whole cluster under load and faults, judged by its recorded history."""
