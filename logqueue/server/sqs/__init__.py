"""The protocol of Amazon SQS, as its clients speak it: AWS JSON 1.0 below /sqs; see docs/sqs.md."""
