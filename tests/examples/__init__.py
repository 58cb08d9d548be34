"""The examples, run as their READMEs say."""
