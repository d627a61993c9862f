"""The driver API's graphs: captured, built node by node, and what they own."""
