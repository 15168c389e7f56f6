"""Request and response schemas of the API, and the serializers that fill them."""
