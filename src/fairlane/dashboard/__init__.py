"""The dashboard: samples the state of the whole system once a second and sends it to viewers."""
