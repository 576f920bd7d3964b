"""Drop-in replacements for other libraries' attention functions."""
