"""The claims of OEF (Middleware'24)."""
