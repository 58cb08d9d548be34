"""The archive: manifests, which files count, what each of them holds."""
