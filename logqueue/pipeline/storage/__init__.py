"""Where jobs of the pipeline read and write files: directories, and object stores."""
