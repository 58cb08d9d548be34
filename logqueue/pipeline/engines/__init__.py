"""What runs the pipeline: a package per engine. Engines import the pipeline, not each other."""
