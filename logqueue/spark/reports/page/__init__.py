"""What the report page is made of: figures in words, steps of time, drawings, sections, looks.

Owns: HTML, SVG, CSS and the words on the page. Must not know: Spark, files, where tables come from.
"""
