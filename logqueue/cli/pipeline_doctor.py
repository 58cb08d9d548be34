"""`logqueue pipeline doctor`: what this machine has and lacks.

Owns: how findings are shown. Must not know: what is looked at.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from logqueue.cli import exits, output


def doctor(arguments: argparse.Namespace) -> int:
    """Look at everything; status 1 says that something essential is missing."""
    from logqueue.pipeline.engines.spark.session import doctor

    findings = doctor.examine()
    is_fit = doctor.is_fit(findings)
    if arguments.json:
        output.json_line({"fit": is_fit, "findings": [asdict(finding) for finding in findings]})
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            hint = f"; {finding.hint}" if finding.hint else ""
            text = f"{finding.state:<7}  {finding.name:<{width}}  {finding.detail}{hint}"
            output.line(output.printable(text))
    return exits.OK if is_fit else exits.FAILURE
