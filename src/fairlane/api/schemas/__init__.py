"""Request schemas of the API, and the serializers that fill the responses."""
