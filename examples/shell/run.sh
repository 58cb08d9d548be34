#!/bin/sh
# Counts the words of a file, a line at a time: ./run.sh FILE
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

logqueue create lines --queue --exist-ok
logqueue create counts --exist-ok
logqueue append lines "$1" --format text
logqueue work lines --exec "$here/count-words" --raw -c 4 --reject-on 65 --once
logqueue read counts --data
