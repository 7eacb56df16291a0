"""From generated code to an image: libraries and archives, a project of files, the build of it."""
