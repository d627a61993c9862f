"""Memory that is kept from call to call."""
