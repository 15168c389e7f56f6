"""Request schemas (Pydantic) of the API, and the serializers of the responses."""
