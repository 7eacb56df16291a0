"""From generated code to an image: libraries and archives, projects, and their builds."""
