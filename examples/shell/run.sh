#!/bin/sh
# Counts the words of a file, a line at a time: ./run.sh FILE
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

logqueue ensure lines --queue
logqueue ensure counts
logqueue append lines "$1" --format text
logqueue work lines --exec "$here/count-words" --raw -c 4 --reject-on 65 --once
logqueue read counts --data
